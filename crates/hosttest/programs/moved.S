# `syscall` in awkward surroundings, as a library that gets an image of its own. All ask for getppid.
        .text
        .macro function name
        .globl \name
        .type \name, @function
\name:
        .endm

        function memory_operand_before
        mov     number(%rip), %eax
        syscall
        ret
        .size memory_operand_before, . - memory_operand_before

        function branch_to_the_call
        mov     $110, %eax
        jmp     1f
        nop
1:      syscall
        add     $0, %rax
        ret
        .size branch_to_the_call, . - branch_to_the_call

        function short_branch_behind
        mov     $110, %eax
        jmp     1f
        nop
1:      syscall
        test    %eax, %eax
        jns     2f
        mov     $-7, %rax
2:      ret
        .size short_branch_behind, . - short_branch_behind

        function far_jump_behind
        mov     $110, %eax
        jmp     1f
        nop
1:      syscall
        .byte   0xe9
        .long   2f - . - 4
        ud2
2:      ret
        .size far_jump_behind, . - far_jump_behind

        function memory_operand_behind
        mov     $110, %eax
        jmp     1f
        nop
1:      syscall
        add     zero(%rip), %eax
        ret
        .size memory_operand_behind, . - memory_operand_behind

        function stack_used_around
        mov     $110, %eax
        push    %rbx
        push    %rbp
        xor     %edi, %edi
        syscall
        pop     %rbp
        pop     %rbx
        ret
        .size stack_used_around, . - stack_used_around

# Branches to the call and right behind it: there is no room.
        function no_room
        mov     $110, %eax
        test    %edi, %edi
        js      2f
        jmp     1f
        nop
1:      syscall
2:      nop
        nop
        nop
        ret
        .size no_room, . - no_room

# The place behind the call is only known to a jump table.
        function jump_table
        mov     $110, %eax
        and     $1, %edi
        lea     table(%rip), %rdx
        movslq  (%rdx, %rdi, 4), %rcx
        add     %rdx, %rcx
        jmp     *%rcx
1:      syscall
2:      nop
        nop
        nop
        ret
        .size jump_table, . - jump_table

        .section .rodata
number: .long   110
zero:   .long   0
table:  .long   1b - table, 2b - table
        .section .note.GNU-stack, "", @progbits
