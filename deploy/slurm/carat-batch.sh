#!/bin/bash
# A batch on many GPUs: each task of a Slurm job array answers one shard of the file.
#
#   sbatch --array=1-8 deploy/slurm/carat-batch.sh IN.jsonl FOLDER -m MODEL [flags of carat batch]
#   cat FOLDER/part-?????.jsonl > OUT.jsonl         # once all tasks are done; lines are in the input's order
#   cat FOLDER/part-*.errors.jsonl                  # the lines that failed, if there are any
#
# A task that was preempted, killed or lost its node goes on where it was when it runs again: `sbatch --array=3,7` with the
# same folder does so by hand. The number of shards is that of the first submission; FOLDER/shards has it.
#SBATCH --job-name=carat-batch
#SBATCH --output=carat-batch-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=8
#SBATCH --requeue
# A minute and a half before its time is over the task stops by itself and is put back into the queue.
#SBATCH --signal=B:USR1@90
# One GPU for each task; on the command line this can be another name, or --gres=none.
#SBATCH --gres=gpu:1
set -euo pipefail

usage() {
  echo "usage: sbatch --array=1-N carat-batch.sh IN.jsonl FOLDER [flags of carat batch]" >&2
  exit 1
}
[[ $# -ge 2 ]] || usage
[[ -n ${SLURM_ARRAY_TASK_ID:-} ]] || usage
input=$1 folder=$2
shift 2

mkdir -p "$folder"
if [[ ! -e $folder/shards ]]; then
  if ((SLURM_ARRAY_TASK_MIN != 1 || SLURM_ARRAY_TASK_MAX != SLURM_ARRAY_TASK_COUNT)); then
    echo "carat-batch.sh: the first submission needs all shards, --array=1-N" >&2
    exit 1
  fi
  # Tasks that start at the same time write the same.
  echo "$SLURM_ARRAY_TASK_COUNT" >"$folder/shards.$SLURM_ARRAY_TASK_ID"
  mv "$folder/shards.$SLURM_ARRAY_TASK_ID" "$folder/shards"
fi
shards=$(<"$folder/shards")
output=$(printf '%s/part-%05d.jsonl' "$folder" "$SLURM_ARRAY_TASK_ID")

"${CARAT:-carat}" batch "$input" "$output" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
  --threads "${SLURM_CPUS_PER_TASK:-1}" "$@" &
carat=$!
is_time_over=
trap 'is_time_over=yes; kill -TERM $carat' USR1
trap 'kill -TERM $carat' TERM
status=0
wait $carat || status=$?
while kill -0 $carat 2>/dev/null; do  # a signal ended the waiting, not carat
  status=0
  wait $carat || status=$?
done

case $status in
  0) ;;
  15) echo "carat-batch.sh: shard $SLURM_ARRAY_TASK_ID/$shards is done; some of its lines failed" >&2 ;;
  *)
    if [[ -n $is_time_over ]]; then exec scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi
    exit "$status"
    ;;
esac
