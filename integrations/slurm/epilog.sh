#!/bin/sh
# Slurm's Epilog: brings out what the job asked for, ends its instance, removes what is left.
# The node is the job's until this ends.
exec "${MAYFLY:-/usr/bin/mayfly}" site epilog --config "${MAYFLY_SITE:-/etc/mayfly/site.toml}"
