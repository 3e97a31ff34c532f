// Turns Ctrl-C into a flag that work polls, instead of the end of the program.
#pragma once

#include <atomic>

namespace ktx::tools {

// What a second one does while the first one's flag is still set.
enum class SecondInterrupt {
  Nothing,  // a conversation is not lost by one press too many; Ctrl-\ (SIGQUIT) still ends it
  Ends,     // ends the program
};

// From now on SIGINT sets the flag. Where SIGINT was ignored (a shell's background job) it
// stays so.
void catch_interrupts(SecondInterrupt second);

const std::atomic<bool>& interrupt_flag();
bool interrupted();     // whether the flag is set
bool take_interrupt();  // the same, and clears it

// Ends the program as SIGINT would have done, so that a shell sees it (status 130) and stops
// its own loop; returns 130 where that signal is ignored. What was printed goes out first.
int end_interrupted();

// From now on SIGBUS says what it means before it ends the program. Before the first file is
// mapped: guards of mapped files (lib/support/sigbus_guard.h) pass on what is not theirs.
void explain_bus_errors();

}  // namespace ktx::tools
