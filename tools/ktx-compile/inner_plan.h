// What the plans within a plan have in common: a file beside the output while they are made, and
// findings that say whose they are ("the drafter: ...").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::tools {

// Removes the file at its end.
struct RemoveFile {
  void operator()(std::string* path) const;
};
using OwnFile = std::unique_ptr<std::string, RemoveFile>;

// The first error of those that a stage found, else `otherwise`. `whose`: "the drafter".
Error first_error(const DiagSink& sink, std::string_view whose, const std::string& otherwise);
// What is no error goes to those of the model.
void hand_on_warnings(const DiagSink& from, std::string_view whose, DiagSink& to);

}  // namespace ktx::tools
