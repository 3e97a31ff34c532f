// The command line of ktx-compile, parsed into plain fields.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/program/launch_choice.h"

namespace ktx::tools {

struct Options {
  std::string model;                       // GGUF, recognised by its first bytes
  bool model_is_plan = false;              // a plan that stands for its GGUF (plan_input.h)
  std::vector<std::string> merged_before;  // adapters in the weights of that plan
  std::vector<std::string> rules;          // YAML files, in order
  bool sandbox = false;
  std::string output;  // plan; "" when only a report is wanted

  std::string hf_config;
  std::string tokenizer;
  std::string trust;  // "", "config" or "gguf"
  bool hf_config_details = false;
  int64_t ctx = 0;  // 0: the usual one; kLargestCtx
  int64_t max_batch = 1;
  int64_t kv_budget_bytes = 0;
  int64_t vram_bytes = 0;  // 0: all that GPUs have
  std::vector<std::string> expert_profiles;
  std::string draft;                      // "": none; "mtp", or a file
  std::vector<std::string> draft_rules;   // YAML files for its modules
  std::string mmproj;                     // "": none; the GGUF of what reads images
  std::vector<std::string> mmproj_rules;  // likewise
  std::vector<std::string> merge;         // adapters for the weights: FILE[:SCALE]
  bool lossy = false;                     // weights may be rounded for these
  bool drop_unused = false;
  bool split_by_host = false;
  int64_t self_tests = 0;  // prompts
  std::string reuse;       // an older plan whose packed weights may be taken over; "": none
  bool consume = false;    // the model's files go into the plan
  bool consume_if_possible = false;  // likewise, or are copied
  bool bf16_inputs = false;
  bool strict_numerics = false;
  std::string prefer_text;  // as given
  program::Preferences prefer;
  int threads = 0;

  std::string emit;  // "", "module-ir", "step-ir" or "launches"
  std::string stop_after;
  bool graph_text = false;          // the model is a graph in its text form (graph_text.h)
  std::vector<std::string> passes;  // those that a graph as text goes through
  std::vector<std::string> print_after;
  bool time_passes = false;
  bool quiet = false;
  bool progress = false;  // also when quiet

  // Checking, without a plan.
  bool check = false;  // --check, or any of the reports below
  bool strict = false;
  std::string target;   // file, or name of a profile
  std::string dialect;  // "", "ktx" or "ktransformers"
  bool list_unruled = false;
  bool coverage = false;
  bool estimate = false;
  double disk_gbps = 0;             // 0: as the target says
  std::vector<std::string> quants;  // of a config alone: names of usual_types.def
  bool fix = false;
  std::vector<std::string> explain;   // module paths
  std::string report;                 // HTML file to write
  std::string diagnostics_format;     // "", "text", "json" or "sarif"
  std::vector<std::string> warnings;  // what stands behind -W; all are known flags
  std::string explain_code;
  bool print_schema = false;

  std::optional<std::string> tokenize_file;
  bool parse_special = false;
  std::optional<std::string> render_chat_case;
  std::vector<std::string> template_var_texts;  // KEY=VALUE
  nlohmann::ordered_json template_vars = nlohmann::ordered_json::object();
  std::optional<std::string> chat_template, chat_template_file;  // instead of the model's
  std::optional<std::string> bos, eos;
  std::string now;
};

// Nothing where there is nothing to run: `status` is then the exit status, 0 after --help and
// --version, 2 after a mistake, which stands on stderr.
std::optional<Options> parse_options(int argc, char** argv, int& status);

}  // namespace ktx::tools
