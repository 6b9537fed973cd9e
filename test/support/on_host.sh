#!/bin/bash
# Runs a command on a host of cluster.py, as ssh would: on_host.sh [OPTION...] ADDRESS COMMAND
# The launcher calls it. PARTITA_CLUSTER is what the names of the hosts begin with. If this process is killed, all that
# it started on the host ends.
while [[ $1 == -* ]]; do shift; done
host=$PARTITA_CLUSTER-${1##*.}
shift
exec ip netns exec "$host" unshare --ipc --uts --pid --fork --kill-child --mount-proc \
  sh -c "hostname $host && mount -t tmpfs shm /dev/shm && { $*; exit \$?; }"
