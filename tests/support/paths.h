// Paths of the repository, its build and the shared material. They are functions of one small
// file (paths.cc), so that no other object depends on the location of the clone and ccache can
// share objects between clones, and between builds with and without sanitizers.
#pragma once

#include <string>

namespace ktx {

const std::string& source_dir();  // the repository
const std::string& binary_dir();  // its build: ktx-compile, ktx-run
const std::string& shared_dir();  // ../shared of the repository; may be absent
bool sanitized();                 // what is tested is built with sanitizers (KTX_SANITIZE)

}  // namespace ktx
