// The change of stacks, once per program. No function of the compiler's stands around it, so that its options
// (protectors, frame pointers, counters) add nothing to it.
//
// Floating-point control belongs to the caller in either convention: MXCSR but for its flags, the x87 control word, FPCR.
// It is written only where the two stacks differ in it, for a write takes longer than the rest.
//
// Neither knows shadow stacks (x86 SHSTK, aarch64 GCS): toolchain.py builds the executor so that no program with it is
// marked as fit for them, and the system then leaves them off. `ret` needs no landing pad of IBT or BTI.
#include "switch.h"

#if defined(__x86_64__)

asm(R"(
    .text
    .p2align 5
    .globl cudamaster_cpu_switch_stack
    .hidden cudamaster_cpu_switch_stack
    .type cudamaster_cpu_switch_stack, @function
cudamaster_cpu_switch_stack:
    .cfi_startproc
    endbr64
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    pushq %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r12, 0
    pushq %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r13, 0
    pushq %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r14, 0
    pushq %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r15, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movl (%rsp), %eax
    movzwl 4(%rsp), %ecx
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    xorl (%rsp), %eax
    testl $0xffc0, %eax
    je 1f
    ldmxcsr (%rsp)
1:  cmpw 4(%rsp), %cx
    je 2f
    fldcw 4(%rsp)
2:  addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r15
    popq %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r14
    popq %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r13
    popq %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r12
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    popq %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    ret
    .cfi_endproc
    .size cudamaster_cpu_switch_stack, .-cudamaster_cpu_switch_stack
)");

#elif defined(__aarch64__)

asm(R"(
    .text
    .p2align 4
    .globl cudamaster_cpu_switch_stack
    .hidden cudamaster_cpu_switch_stack
    .type cudamaster_cpu_switch_stack, %function
cudamaster_cpu_switch_stack:
    .cfi_startproc
    mrs x9, fpcr
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x9, x19, [sp, #0]
    stp x20, x21, [sp, #16]
    stp x22, x23, [sp, #32]
    stp x24, x25, [sp, #48]
    stp x26, x27, [sp, #64]
    stp x28, x29, [sp, #80]
    stp x30, xzr, [sp, #96]
    stp d8, d9, [sp, #112]
    stp d10, d11, [sp, #128]
    stp d12, d13, [sp, #144]
    stp d14, d15, [sp, #160]
    .cfi_rel_offset x19, 8
    .cfi_rel_offset x20, 16
    .cfi_rel_offset x21, 24
    .cfi_rel_offset x22, 32
    .cfi_rel_offset x23, 40
    .cfi_rel_offset x24, 48
    .cfi_rel_offset x25, 56
    .cfi_rel_offset x26, 64
    .cfi_rel_offset x27, 72
    .cfi_rel_offset x28, 80
    .cfi_rel_offset x29, 88
    .cfi_rel_offset x30, 96
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    ldp x10, x19, [sp, #0]
    ldp x20, x21, [sp, #16]
    ldp x22, x23, [sp, #32]
    ldp x24, x25, [sp, #48]
    ldp x26, x27, [sp, #64]
    ldp x28, x29, [sp, #80]
    ldr x30, [sp, #96]
    ldp d8, d9, [sp, #112]
    ldp d10, d11, [sp, #128]
    ldp d12, d13, [sp, #144]
    ldp d14, d15, [sp, #160]
    add sp, sp, #176
    .cfi_adjust_cfa_offset -176
    .cfi_restore x19
    .cfi_restore x20
    .cfi_restore x21
    .cfi_restore x22
    .cfi_restore x23
    .cfi_restore x24
    .cfi_restore x25
    .cfi_restore x26
    .cfi_restore x27
    .cfi_restore x28
    .cfi_restore x29
    .cfi_restore x30
    cmp x9, x10
    b.eq 1f
    msr fpcr, x10
1:  ret
    .cfi_endproc
    .size cudamaster_cpu_switch_stack, .-cudamaster_cpu_switch_stack
)");

#endif
