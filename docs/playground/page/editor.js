// A text area with line numbers beside it.

export class Editor {
  constructor(area) {
    this.area = area;
    this.gutter = document.createElement("div");
    this.gutter.className = "gutter";
    this.gutter.setAttribute("aria-hidden", "true");
    area.before(this.gutter);
    this.lines = 0;
    area.addEventListener("input", () => this.number());
    area.addEventListener("scroll", () => (this.gutter.scrollTop = area.scrollTop));
    this.number();
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    this.area.value = text;
    this.area.scrollTop = 0;
    this.number();
  }

  number() {
    const lines = this.area.value.split("\n").length;
    if (lines === this.lines) return;
    this.lines = lines;
    this.gutter.textContent = Array.from({ length: lines }, (_, i) => i + 1).join("\n");
    this.gutter.scrollTop = this.area.scrollTop;
  }

  // Select from a line and a column, both from 1, to the end of the line, and show it. A column counts characters, of
  // which some are two units of a JavaScript string.
  show(line, column) {
    const lines = this.area.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const text = lines[line - 1] ?? "";
    const skipped = [...text].slice(0, column - 1).join("").length;
    this.area.focus();
    this.area.setSelectionRange(start + skipped, start + text.length);
    const height = this.area.scrollHeight / Math.max(lines.length, 1);
    this.area.scrollTop = Math.max(0, (line - 4) * height);
    this.area.scrollLeft = 0;
  }
}
