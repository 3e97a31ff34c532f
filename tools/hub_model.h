// Models of a hub on a command line, instead of a file.
//
//   hf:OWNER/NAME              the Q4_K_M file, or the only one
//   hf:OWNER/NAME:Q8_0         the file, or its shards, of this name
//   hf:OWNER/NAME@v1.1:Q8_0    of this revision
//   https://huggingface.co/OWNER/NAME/blob/main/NAME-Q8_0.gguf, hf.co/OWNER/NAME:Q8_0
//
// One model is one HubModel, however it is written: QUANT in upper case, the revision main as none.
//
// Networks are ktx-pull's, a program of its own: it is started where such a name was typed, and not
// otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::tools {

// A name of this form, where no file is called so.
bool is_hub_model(const std::string& word);

// What follows "hf:", checked: each part is a plain name, so that it may stand in a path and a URL.
struct HubModel {
  std::string owner, name;
  std::string revision;  // "": the usual one
  std::string quant;     // "": the usual one
  std::string text() const;
};
Result<HubModel> parse_hub_model(std::string_view word);

struct PullEnd {
  // What it printed: the GGUF or the first of its shards, its name where it was `moved`, or a list;
  // "" where it failed.
  std::string path;
  bool moves = false;  // it was fetched to be moved into its plan (ktx-pull --for-plan)
  bool moved = false;  // it was moved already: the file is not there, and its plan is
  int status = 0;      // of ktx-pull, which has said why
  int signal = 0;      // that ended it
};
// Where a model was pulled before, no network is asked. `more`: options of ktx-pull.
Result<PullEnd> pull_model(const std::string& word, std::vector<std::string> more = {});

// "hf:OWNER/NAME-GGUF:Q8_0" -> "NAME-Q8_0": for the plan of it.
std::string plan_name_of(const HubModel& model);

}  // namespace ktx::tools
