#!/usr/bin/env bash
# A sweep on a Slurm cluster: a job array of shards, `kvreplay sweep --shard I/N`, and a job after it
# that merges them. The result is, byte for byte, that of one local sweep.
#
#   tools/scripts/sweep_slurm.sh --shards N --out DIR [--wait] [--program FILE] [--sbatch "OPTIONS"]
#                        EXPERIMENT [OPTION OF kvreplay sweep]...
#
#   --shards N      jobs of the array
#   --out DIR       new folder for the results; DIR.shards-JOB beside it holds the shards meanwhile
#   --wait          come back when the results are there
#   --program FILE  kvreplay (default: build/release/kvreplay of this source tree)
#   --sbatch "..."  further options for every job, such as "--partition=short --mem=4G"
#
# The experiment, its traces, DIR and the cache (--cache, or ~/.cache/kvreplay) must lie where all
# nodes see them. A job that was killed can be submitted again: what it had finished is in the cache.
set -euo pipefail

fail() {
  echo "tools/scripts/sweep_slurm.sh: $1" >&2
  exit 2
}

# What the jobs run: shard PROGRAM OUT COUNT ARGUMENT..., and merge PROGRAM OUT COUNT SHARDS_JOB.
case "${1-}" in
  shard)
    program=$2 out=$3 count=$4
    shift 4
    exec "$program" sweep "$@" --shard "$SLURM_ARRAY_TASK_ID/$count" --quiet --format none \
      --jobs "${SLURM_CPUS_PER_TASK:-1}" --out "$out.shards-$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID"
    ;;
  merge)
    program=$2 out=$3 count=$4 job=$5
    folders=()
    for ((index = 1; index <= count; ++index)); do folders+=("$out.shards-$job/$index"); done
    "$program" merge "${folders[@]}" --out "$out"
    rm -r -- "$out.shards-$job"
    exit
    ;;
esac

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
script=$here/$(basename -- "${BASH_SOURCE[0]}")
program=$here/../../build/release/kvreplay
[[ -x $program ]] || program=$here/../../../../bin/kvreplay  # of the prefix where this is installed
shards='' out='' wait=() options=()
while (($#)); do
  case "$1" in
    --help | -h)
      sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' -- "${BASH_SOURCE[0]}"
      exit
      ;;
    --wait) wait=(--wait) ;;
    --shards | --out | --program | --sbatch)
      (($# > 1)) || fail "$1: found no value"
      case "$1" in
        --shards) shards=$2 ;;
        --out) out=$2 ;;
        --program) program=$2 ;;
        --sbatch) read -r -a options <<<"$2" ;;
      esac
      shift
      ;;
    *) break ;;
  esac
  shift
done
[[ $shards =~ ^[1-9][0-9]*$ ]] || fail "--shards: found '$shards'; allowed: an integer from 1"
[[ -n $out ]] || fail "--out: found none; allowed: a new folder"
(($#)) || fail "found no EXPERIMENT; allowed: a file, or a name from \`kvreplay list experiments\`"
[[ -x $program ]] || fail "$program: is no program; allowed: --program FILE, a built kvreplay"
command -v sbatch >/dev/null || fail "sbatch is missing; allowed: a host of a Slurm cluster"
[[ ! -e $out || -z $(ls -A -- "$out" 2>/dev/null || echo file) ]] ||
  fail "$out: is there already; allowed: a new or empty folder"
program=$(realpath -- "$program")
out=$(realpath -m -- "$out")

submit() { # WORDS... of the command, quoted for the shell that sbatch starts
  local command
  printf -v command '%q ' "$script" "${@:2}"
  # shellcheck disable=SC2086 # the options of one submission, several words
  sbatch --parsable --job-name=kvreplay --output=/dev/null --error="$out.%A_%a.log" \
    "${options[@]}" $1 --wrap "exec $command"
}

job=$(submit "--array=1-$shards" shard "$program" "$out" "$shards" "$@")
job=${job%%;*}
echo "tools/scripts/sweep_slurm.sh: job array $job of $shards shards" >&2
failed=0
submit "--dependency=afterok:$job --kill-on-invalid-dep=yes ${wait[*]}" \
  merge "$program" "$out" "$shards" "$job" >/dev/null || failed=1
((${#wait[@]})) || exit "$failed"
# A merge that a failed shard made impossible is cancelled, which --wait takes for a success.
[[ -e $out/results.csv ]] || {
  echo "tools/scripts/sweep_slurm.sh: the sweep failed; see $out.*.log" >&2
  exit 1
}
rm -f -- "$out".*_*.log
