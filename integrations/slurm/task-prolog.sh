#!/bin/sh
# Slurm's TaskProlog: the programs of each task are in the instance of their job.
exec "${MAYFLY:-/usr/bin/mayfly}" site task-prolog --config "${MAYFLY_SITE:-/etc/mayfly/site.toml}"
