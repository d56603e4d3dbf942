#!/usr/bin/env bash
# Open an issue when a night is not good, add to it while it lasts, and close it when all is good.
#
#     issue.sh CODE FILE     CODE is the exit code of `pitcheck sweep`, FILE its results as text
#
# It needs gh, the command-line tool of GitHub, and a token that may write issues (GH_TOKEN).
set -euo pipefail
code=$1 file=$2 label=pitcheck-night

number=$(gh issue list --state open --label "$label" --limit 1 --json number --jq '.[].number')
if [ "$code" = 0 ]; then
    if [ -n "$number" ]; then
        gh issue close "$number" --comment "The night is good again."
    fi
elif [ -n "$number" ]; then
    gh issue comment "$number" --body-file "$file"
else
    gh label create "$label" --description "pitcheck sweep" --force
    gh issue create --title "The night is not good" --label "$label" --body-file "$file"
fi
