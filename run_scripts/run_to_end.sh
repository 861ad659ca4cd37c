# shellcheck shell=bash
# How a run ends, whatever ends it: no process is left, no half-written checkpoint keeps its final name, the log is
# whole. Sourced by common.sh, not run; works on RUN_DIR.

# run_to_end COMMAND...: in RUN_DIR, whole log kept over restarts. Ctrl-C and SIGTERM reach the command and all its
# children; whatever the end, no half-written checkpoint keeps its final name.
run_to_end() {
    local status=0
    # verl begins its log anew at every start.
    if ((${NODE_RANK:-0} == 0)) && [[ -f $RUN_DIR/log.jsonl ]]; then
        mv "$RUN_DIR/log.jsonl" "$RUN_DIR/log.earlier"
    fi
    set -m # a process group of its own, so that a signal can reach all of it
    "$@" &
    RUN_PID=$!
    set +m
    { set +x; } 2>/dev/null # what follows speaks for itself
    trap 'interrupt' INT TERM
    # `wait` also returns when a signal comes in.
    while kill -0 "$RUN_PID" 2>/dev/null; do
        status=0
        wait "$RUN_PID" || status=$?
    done
    trap - INT TERM
    kill -KILL -- "-$RUN_PID" 2>/dev/null || true # children that outlived it
    put_in_order || true
    ((status == 0)) || explain_failure "$status"
    return "$status"
}

interrupt() {
    echo "$(basename "$0"): stopping" >&2
    # Not INT: what a shell starts in the background ignores that one.
    kill -TERM -- "-$RUN_PID" 2>/dev/null || true
    # A second signal, or 60 s, and it is killed.
    trap 'kill -KILL -- "-$RUN_PID" 2>/dev/null || true' INT TERM
    for ((i = 0; i < 120; i++)); do
        kill -0 "$RUN_PID" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -KILL -- "-$RUN_PID" 2>/dev/null || true
}

# put_in_order: what a run leaves in RUN_DIR when it ends; at the next start once more, since this script may have been
# killed together with it. Of several nodes the first does it.
put_in_order() {
    if ((${NODE_RANK:-0} == 0)); then
        set_unfinished_checkpoints_aside && join_logs
    fi
}

# join_logs: the log of earlier starts and of this one as log.jsonl; on a full disk both stay as they are.
join_logs() {
    local log=$RUN_DIR/log.jsonl earlier=$RUN_DIR/log.earlier whole=$RUN_DIR/log.whole
    [[ -f $earlier ]] || return 0
    touch "$log" # a run that failed early has none
    if cat "$earlier" "$log" >"$whole" && mv "$whole" "$log"; then
        rm "$earlier"
    else
        rm -f "$whole"
        echo "$(basename "$0"): $earlier cannot be joined with $log: free some disk space and start again" >&2
        return 1
    fi
}

# set_unfinished_checkpoints_aside: verl names the newest whole checkpoint in a file; what is newer was cut off.
set_unfinished_checkpoints_aside() {
    local newest folder step
    newest=$(newest_checkpoint) || return 1
    for folder in "$RUN_DIR"/global_step_*; do
        step=${folder##*global_step_}
        if [[ $step =~ ^[0-9]+$ ]] && ((step > newest)); then
            rm -rf "$folder.unfinished"
            mv "$folder" "$folder.unfinished"
            echo "$(basename "$0"): the checkpoint of step $step was not completed; it is now $folder.unfinished," \
                "which can be deleted" >&2
        fi
    done
}

# newest_checkpoint: the step of the newest whole checkpoint, -1 without one.
newest_checkpoint() {
    local tracker=$RUN_DIR/latest_checkpointed_iteration.txt step=-1 state
    if [[ ! -f $tracker ]]; then
        echo -1
        return
    fi
    step=$(<"$tracker")
    if [[ ! $step =~ ^[0-9]+$ ]]; then
        # verl writes this file in place, after all others of a checkpoint: the disk was full when it came to that, and
        # verl would not start again with an empty one.
        step=-1
        for state in "$RUN_DIR"/global_step_*/data.pt; do
            state=${state%/data.pt}
            state=${state##*global_step_}
            if [[ $state =~ ^[0-9]+$ ]] && ((state > step)); then
                step=$state
            fi
        done
        if ((step < 0)); then
            echo "$(basename "$0"): $tracker is empty and no checkpoint is whole: delete it to begin anew" >&2
            return 1
        fi
        if ! { echo "$step" >"$tracker.new" && mv "$tracker.new" "$tracker"; } 2>/dev/null; then
            echo "$(basename "$0"): $tracker is empty: free some disk space and start again" >&2
            return 1
        fi
    fi
    echo "$step"
}

# explain_failure STATUS
explain_failure() {
    local free_kb
    free_kb=$(df -Pk "$RUN_DIR" | awk 'NR == 2 {print $4}')
    if ((free_kb < 1024 * 1024)); then
        echo "$(basename "$0"): less than 1 GiB is left on the disk of $RUN_DIR: free some, or lower KEEP_CHECKPOINTS" >&2
    fi
    if [[ -s $RUN_DIR/latest_checkpointed_iteration.txt ]]; then
        echo "$(basename "$0"): ended with status $1; the same command goes on from step" \
            "$(<"$RUN_DIR/latest_checkpointed_iteration.txt")" >&2
    else
        echo "$(basename "$0"): ended with status $1 before the first checkpoint" >&2
    fi
}
