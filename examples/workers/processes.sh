#!/bin/sh
# Starts the workers of a program as processes of this machine, which meet over TCP:   processes.sh WORKERS ./train --data data ..
workers=$1
shift
export WORLD_SIZE="$workers" MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-29400}"
rank=1
while [ "$rank" -lt "$workers" ]; do
  RANK=$rank "$@" &
  rank=$((rank + 1))
done
RANK=0 "$@"
code=$?
wait
exit $code
