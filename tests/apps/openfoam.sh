# Program 6: OpenFOAM's pitzDaily with simpleFoam, serial and decomposed over two ranks.
# Prints the residuals; leaves the fields, and logs without their dates, times and process numbers.
set -eu
cd "$APP_DIR"
tutorial=/usr/share/doc/openfoam-examples/examples/incompressible/simpleFoam/pitzDaily
iterations=${APP_ITERATIONS:-100}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_plm=isolated
export WM_PROJECT_DIR=/usr/share/openfoam HOME=/nonexistent TMPDIR=/tmp

# Keeps from LOG what is the same in every run.
residuals() {
    grep -E '^(Time = |.*Solving for|time step continuity|End)' "$1" > "$1.residuals"
    rm "$1"
    cat "$1.residuals"
}

settings() {
    foamDictionary -entry endTime -set "$iterations" system/controlDict > /dev/null
    foamDictionary -entry writeInterval -set "$iterations" system/controlDict > /dev/null
    foamDictionary -entry writePrecision -set 12 system/controlDict > /dev/null
    foamDictionary -entry functions -remove system/controlDict > /dev/null 2>&1 || true
}

cp -r "$tutorial" serial
find serial -name '*.gz' -exec gunzip {} +
chmod -R u+w serial
cd serial
settings
blockMesh > log.blockMesh
rm log.blockMesh
cd ..
cp -r serial parallel

cd serial
simpleFoam > log.simpleFoam
residuals log.simpleFoam
cd ../parallel
cat > system/decomposeParDict <<'DICT'
FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
DICT
decomposePar > log.decompose
mpirun.openmpi -n 2 simpleFoam -parallel > log.simpleFoam
residuals log.simpleFoam
reconstructPar > log.reconstruct
rm log.decompose log.reconstruct
cd ..
find . -type f | sort
