#!/bin/bash
# Builds variants of step 2 of spmm in fp32 and times each: bash drafts/gpu_f32.sh [PATTERN]
# PATTERN is a regular expression for the names, as '^csr'. Builds go to a folder of their own.
cd "$(dirname "$0")/.." || exit 1
out=$(mktemp -d)
csr="262144,2048,5368709,4096,0 8192,2048,167772,4096,0"
coo="65536,2048,1342177,4096,0"
ell="2048,32768,671088,4096,0"
csc="2048,16384,335544,4096,0"
skew="65536,2048,1342177,4096,3"
variants=(
  "csr_old||$csr $skew"
  "csr_new||$csr $skew"
  "csr_small256|-DSMALL=256|$csr"
  "csr_t576|-DTHREADS=576|$csr $skew"
  "csr_probe_sort_only|-DNOMULT|$csr $skew"
  "csr_small256_probe_sort_only|-DSMALL=256 -DNOMULT|$csr"
  "ell_old||$ell"
  "ell_new||$ell 2048,4096,83886,4096,40"
  "ell_stagger0_load0|-DSTAGGER=0 -DLOAD=0|$ell"
  "ell_stagger0|-DSTAGGER=0|$ell"
  "ell_stagger6|-DSTAGGER=6|$ell"
  "ell_stagger20|-DSTAGGER=20|$ell"
  "ell_stagger32|-DSTAGGER=32|$ell"
  "ell_t576|-DTHREADS=576|$ell"
  "ell_probe_noload|-DNOLOAD -DSTAGGER=0|$ell"
  "ell_probe_sort_only|-DNOMULT|$ell"
  "csc_old||$csc"
  "csc_new||$csc 16384,16384,335544,4096,3"
  "csc_stagger0_load0|-DSTAGGER=0 -DLOAD=0|$csc"
  "csc_stagger0|-DSTAGGER=0|$csc"
  "csc_stagger6|-DSTAGGER=6|$csc"
  "csc_stagger20|-DSTAGGER=20|$csc"
  "csc_stagger32|-DSTAGGER=32|$csc"
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
