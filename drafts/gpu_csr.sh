#!/bin/bash
# Builds variants of spmm_csr fp32 and times each: bash drafts/gpu_csr.sh [OUT]
cd "$(dirname "$0")/.." || exit 1
out=${1:-${OUT:-/tmp/f32}}
mkdir -p "$out"
new=../cudamaster/playbook/spmm_csr/fp32/2_slabs_in_shared_memory.cu
old=../drafts/spmm_csr_old.cu
variants=(
  "old||$old"
  "t512||$new"
  "t512_nosplit|-DSPLIT=0|$new"
  "t576|-DTHREADS=576|$new"
  "t640|-DTHREADS=640|$new"
  "t640_b1_f4|-DTHREADS=640 -DBATCH=1 -DFARS=4|$new"
  "t768_b1_f4|-DTHREADS=768 -DBATCH=1 -DFARS=4|$new"
  "t512_f4|-DFARS=4|$new"
  "t512_b1|-DBATCH=1|$new"
  "t512_b3|-DBATCH=3|$new"
  "t512_next0|-DNEXT=0|$new"
  "t384|-DTHREADS=384|$new"
  "probe_nofar|-DNOFAR|$new"
  "probe_nostore|-DNOSTORE|$new"
  "probe_neither|-DNOFAR -DNOSTORE|$new"
  "probe_sort_only|-DNOMULT|$new"
)
# Processes that only build; each is waited for.
printf '%s\n' "${variants[@]}" | xargs -P "$(nproc)" -d '\n' -I{} bash -c '
  IFS="|" read -r name flags kernel <<< "$1"
  nvcc -arch=sm_90 -O3 --use_fast_math -std=c++17 -DFORMAT=0 -DBF16=0 -DFUNCTION=spmm_csr_optimized \
    -DKERNEL="\"$kernel\"" $flags -Xptxas -v benchmarks/spmm_times.cu -o "$2/$name" > "$2/$name.log" 2>&1 || echo "$name: not built"
' _ {} "$out"
for one in "${variants[@]}"; do
  name=${one%%|*}
  registers=$(grep -A2 "Compiling.*multiply_kernel" "$out/$name.log" | tr '\n' ' ' | grep -oE '[0-9]+ bytes spill stores' | tr '\n' ' ')
  registers+=$(grep -A3 "Compiling.*multiply_kernel" "$out/$name.log" | grep -oE 'Used [0-9]+ registers')
  echo "== $name ($registers)"
  CALLS=${CALLS:-7} "$out/$name" 262144,2048,5368709,4096,0 8192,2048,167772,4096,0
done
for one in "${variants[@]}"; do rm -f "$out/${one%%|*}"; done
echo "Probes are wrong on purpose."
