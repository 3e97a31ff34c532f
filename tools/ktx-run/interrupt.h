// Ctrl-C as a flag that work looks at, instead of the end of the program.
#pragma once

namespace ktx::tools {

// From now on SIGINT only sets the flag; a second one while the flag is still set
// (nobody looks: something hangs) ends the program as usual.
void catch_interrupts();

bool interrupted();     // whether the flag is set
bool take_interrupt();  // the same, and clears it

}  // namespace ktx::tools
