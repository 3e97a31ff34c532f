// The options of ktx-compile for a model that is run for the first time.
#pragma once

#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

struct PlanRecipe {
  std::vector<std::string> arguments;  // of ktx-compile, beside the model and -o
  std::string text;                    // what decides the plan, with hashes of files
  std::string note;                    // the options, for people
  bool whole = false;                  // the plan has all of the model, as it is
};

// Whether these options leave the model as it is: no rule or option that may round, merge or drop.
bool keeps_model(const Options& options);

// `drafts`: with --draft.
Result<PlanRecipe> plan_recipe(const Options& options, const std::string& model, bool drafts);

}  // namespace ktx::tools
