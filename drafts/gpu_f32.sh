#!/bin/bash
# Builds variants of step 2 of spmm in fp32 and times each: bash drafts/gpu_f32.sh [PATTERN]
# PATTERN is a regular expression for the names, as '^csr'. Builds go to a folder of their own.
cd "$(dirname "$0")/.." || exit 1
out=$(mktemp -d)
csr="262144,2048,5368709,4096,0 8192,2048,167772,4096,0"
coo="65536,2048,1342177,4096,0"
ell="2048,32768,671088,4096,0"
csc="2048,16384,335544,4096,0"
variants=(
  "csr_old||$csr"
  "csr_t512||$csr 65536,2048,1342177,4096,3"
  "csr_t512_nosplit|-DSPLIT=0|$csr"
  "csr_t576|-DTHREADS=576|$csr"
  "csr_t640|-DTHREADS=640|$csr"
  "csr_t640_b1_f4|-DTHREADS=640 -DBATCH=1 -DFARS=4|$csr"
  "csr_t768_b1_f4|-DTHREADS=768 -DBATCH=1 -DFARS=4|$csr"
  "csr_t512_f4|-DFARS=4|$csr"
  "csr_t512_b1|-DBATCH=1|$csr"
  "csr_t512_b3|-DBATCH=3|$csr"
  "csr_t512_next0|-DNEXT=0|$csr"
  "csr_t384|-DTHREADS=384|$csr"
  "csr_probe_nofar|-DNOFAR|$csr"
  "csr_probe_nostore|-DNOSTORE|$csr"
  "csr_probe_neither|-DNOFAR -DNOSTORE|$csr"
  "csr_probe_sort_only|-DNOMULT|$csr"
  "coo_old||$coo"
  "coo_t512||$coo 65536,2048,1342177,4096,3"
  "coo_t512_nosplit|-DSPLIT=0|$coo"
  "coo_t640|-DTHREADS=640|$coo"
  "coo_probe_sort_only|-DNOMULT|$coo"
  "ell_old||$ell"
  "ell_t512||$ell 2048,4096,83886,4096,40"
  "ell_t640|-DTHREADS=640|$ell"
  "ell_t512_b3|-DBATCH=3|$ell"
  "ell_probe_noload|-DNOLOAD|$ell"
  "ell_probe_nostore|-DNOSTORE|$ell"
  "ell_probe_sort_only|-DNOMULT|$ell"
  "csc_old||$csc"
  "csc_t512||$csc 16384,16384,335544,4096,3"
  "csc_t640|-DTHREADS=640|$csc"
  "csc_probe_sort_only|-DNOMULT|$csc"
)
mapfile -t variants < <(printf '%s\n' "${variants[@]}" | grep -E "${1:-.}")
printf '%s\n' "${variants[@]}" | xargs -P "$(nproc)" -d '\n' -I{} bash -c '
  IFS="|" read -r name flags _ <<< "$1"
  task=${name%%_*}
  declare -A formats=([csr]=0 [coo]=1 [csc]=2 [ell]=3)
  kernel=../cudamaster/playbook/spmm_$task/fp32/2_slabs_in_shared_memory.cu
  if [[ $name == *_old ]]; then kernel=../drafts/spmm_${task}_old.cu; fi
  nvcc -arch=sm_90 -O3 --use_fast_math -std=c++17 -DFORMAT=${formats[$task]} -DBF16=0 \
    -DFUNCTION=spmm_${task}_optimized -DKERNEL="\"$kernel\"" $flags -Xptxas -v benchmarks/spmm_times.cu \
    -o "$2/$name" > "$2/$name.log" 2>&1 || { echo "$name: not built"; cat "$2/$name.log"; }
' _ {} "$out"
nvidia-smi --query-gpu=name,clocks.sm,clocks.max.sm --format=csv,noheader
for one in "${variants[@]}"; do
  IFS="|" read -r name _ sizes <<< "$one"
  found=$(grep -A3 "Compiling.*multiply_kernel" "$out/$name.log" | grep -oE '[0-9]+ bytes spill stores|Used [0-9]+ registers' | tr '\n' ' ')
  echo "== $name ($found)"
  CALLS=${CALLS:-7} timeout 60 "$out/$name" $sizes
done
rm -r "$out"
echo "Probes are wrong on purpose."
