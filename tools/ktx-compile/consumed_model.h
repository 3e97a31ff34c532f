// The files of a model that is moved into its plan (--consume), and what a kill leaves of them.
//
//   m.gguf                              nothing has happened
//   m.gguf.moving, m.ktxplan.moving     the model is in both: the same command goes on
//                  m.ktxplan.moving     the plan is whole: the same command puts it in place
//                  m.ktxplan            done
//
// lib/plan/move_blobs.h has what makes each step safe.
#pragma once

#include <string>
#include <vector>

#include "lib/support/moved_file.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

struct ConsumedModel {
  std::vector<MovedFile> files;  // the shards, in order; none: the model is kept

  // All files of the model, locked. Fails where one of them cannot be moved (moved_file.h). Where
  // one was begun, all are.
  static Result<ConsumedModel> open(const std::string& model);
  bool begun() const { return !files.empty() && files.front().begun(); }
  // The end of a message about a failure: what to do once its cause is gone.
  std::string how_to_go_on(const std::string& plan) const;
};

// Puts a plan in place that a kill has left whole beside it, and removes what is left of its model.
// False: there is none.
Result<bool> finish_move(const Options& options);

}  // namespace ktx::tools
