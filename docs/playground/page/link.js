// A link carries the texts in its fragment: JSON, deflated (with a checksum), in base64url.

export const MOST_LINK = 100_000; // characters of a fragment; longer links are cut by programs that pass them on
export const MOST_TEXT = 2_000_000; // bytes that a link may unfold to
const START = "#1.";
const KEYS = { "reference.plan.json": "r", "parallel.plan.json": "p", "configuration.toml": "c" };
const KINDS = ["p,r", "c"];

// Return the fragment for {texts, seed, bound}. Throws an Error that says what to do.
export async function encodeLink(state) {
  const short = { s: state.seed, b: state.bound };
  for (const [name, text] of Object.entries(state.texts)) short[KEYS[name]] = text;
  const bytes = new TextEncoder().encode(JSON.stringify(short));
  if (bytes.length > MOST_TEXT)
    throw new Error(`The texts have ${bytes.length} bytes; a link holds at most ${MOST_TEXT}. Send the files.`);
  const fragment = START + base64url(await piped(bytes, new CompressionStream("deflate"), Infinity));
  if (fragment.length > MOST_LINK)
    throw new Error(`The link would have ${fragment.length} characters, more than ${MOST_LINK}. Send the files.`);
  return fragment;
}

// Return {texts, seed, bound} of a fragment, or null if it is no link. Throws an Error for a damaged one.
export async function decodeLink(fragment) {
  if (fragment === "" || fragment === "#") return null;
  if (!fragment.startsWith(START)) throw damaged("it does not begin as a link of this page does");
  if (fragment.length > MOST_LINK) throw damaged(`it has ${fragment.length} characters, at most ${MOST_LINK} are read`);
  let short;
  try {
    const packed = fromBase64url(fragment.slice(START.length));
    const bytes = await piped(packed, new DecompressionStream("deflate"), MOST_TEXT);
    short = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw error instanceof RangeError ? damaged(error.message) : damaged("a part of it is missing or changed");
  }
  return checked(short);
}

function checked(short) {
  const { s: seed, b: bound, ...held } = Object(short);
  const kind = Object.keys(held).sort().join();
  const words = [seed, bound, ...Object.values(held)];
  if (!KINDS.includes(kind) || !words.every((word) => typeof word === "string"))
    throw damaged("it does not hold a pair of plans or a configuration");
  const texts = {};
  for (const [name, key] of Object.entries(KEYS)) if (key in held) texts[name] = held[key];
  return { texts, seed, bound };
}

function damaged(why) {
  return new Error(`This link cannot be read: ${why}. Ask for it again, whole.`);
}

// Return what a stream makes of bytes. Throws a RangeError as soon as it has more than `most` bytes.
async function piped(bytes, stream, most) {
  const writer = stream.writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  written.catch(() => {}); // the reader meets the same error
  const reader = stream.readable.getReader();
  const pieces = [];
  let size = 0;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    size += piece.value.length;
    if (size > most) {
      await reader.cancel();
      throw new RangeError(`it unfolds to more than ${most} bytes`);
    }
    pieces.push(piece.value);
  }
  const whole = new Uint8Array(size);
  let position = 0;
  for (const piece of pieces) {
    whole.set(piece, position);
    position += piece.length;
  }
  return whole;
}

function base64url(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64url(text) {
  if (!/^[\w-]*$/.test(text)) throw new SyntaxError("no base64url");
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
}
