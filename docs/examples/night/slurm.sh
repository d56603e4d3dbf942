#!/usr/bin/env bash
# Check a sweep on a Slurm cluster: an array of parts, then a job that merges them and writes the page.
#
#     slurm.sh submit FILE PARTS FOLDER     in the folder from which the files of the sweep are named
#
# FOLDER takes the results; like the files of the sweep it is on storage that all nodes share. A part
# that is requeued goes on with its results. SEED and ACCOUNT may be set beforehand.
set -euo pipefail

submit() {
    local sweep=$1 parts=$2 folder=$3 array
    mkdir -p "$folder"
    # All parts draw by one seed, so it is chosen here. --parsable prints JOB or JOB;CLUSTER.
    export SEED=${SEED:-$(date -u +%Y%m%d)}
    array=$(sbatch --parsable --job-name=pitcheck --array="1-$parts" --requeue \
        --cpus-per-task=8 --mem-per-cpu=4G --time=02:00:00 ${ACCOUNT:+--account="$ACCOUNT"} \
        --output="$folder/part-%a.log" "$0" part "$sweep" "$folder")
    # afterany: the night has to be merged when a part is not good, too.
    sbatch --parsable --job-name=pitcheck-merge --dependency="afterany:${array%%;*}" \
        --mem=4G --time=00:30:00 ${ACCOUNT:+--account="$ACCOUNT"} \
        --output="$folder/merge.log" "$0" merge "$folder"
}

part() {
    local sweep=$1 folder=$2 results="$2/part-$SLURM_ARRAY_TASK_ID.sqlite" resume=
    if [ -e "$results" ]; then resume=--resume; fi
    srun pitcheck sweep "$sweep" --seed "$SEED" --jobs "$SLURM_CPUS_PER_TASK" \
        --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --results "$results" $resume \
        --cache-directory "$folder/proofs"
}

merge() {
    local folder=$1 code=0
    pitcheck merge "$folder/night.sqlite" "$folder"/part-*.sqlite \
        --output "text:$folder/night.txt" --output "junit:$folder/night.xml" || code=$?
    if [ -e "$folder/night.sqlite" ]; then
        pitcheck page "$folder/night.sqlite" --out "$folder/night"
    fi
    exit "$code"
}

"$@"
