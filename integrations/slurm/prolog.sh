#!/bin/sh
# Slurm's Prolog (PrologFlags=Alloc): makes the node ready for a job that asks for an instance.
# A site that has a prolog already calls this line from it.
exec "${MAYFLY:-/usr/bin/mayfly}" site prolog --config "${MAYFLY_SITE:-/etc/mayfly/site.toml}"
