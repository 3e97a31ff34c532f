// Where the repository, its build and the material beside it lie. Functions of one small file
// (paths.cc), so that nothing else compiled depends on the place of the clone, and ccache has it
// for all clones.
#pragma once

#include <string>

namespace ktx {

const std::string& source_dir();  // the repository
const std::string& binary_dir();  // its build: ktx-compile, ktx-run
const std::string& shared_dir();  // ../shared of the repository; may be absent

}  // namespace ktx
