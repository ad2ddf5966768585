// Calls the functions of moved.S: those with room answer from the hook, the others from the kernel,
// and all return.
#include "check.h"

long memory_operand_before(void), branch_to_the_call(void), short_branch_behind(void);
long far_jump_behind(void), memory_operand_behind(void), stack_used_around(void);
long no_room(int), jump_table(int);

int main(void) {
    CHECK(unpatched() == 0);
    CHECK(memory_operand_before() == HOOKED_PPID);
    CHECK(branch_to_the_call() == HOOKED_PPID);
    CHECK(short_branch_behind() == HOOKED_PPID);
    CHECK(far_jump_behind() == HOOKED_PPID);
    CHECK(memory_operand_behind() == HOOKED_PPID);
    CHECK(stack_used_around() == HOOKED_PPID);
    CHECK(no_room(0) > 0 && no_room(0) != HOOKED_PPID && no_room(-1) == 110);
    CHECK(jump_table(0) > 0 && jump_table(0) != HOOKED_PPID && jump_table(1) == 110);
    return wrong != 0;
}
