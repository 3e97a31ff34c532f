// The command line of ktx-run, parsed into plain fields.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ktx::runtime {
class HostGroup;
struct StepResult;
}  // namespace ktx::runtime

namespace ktx::tools {

enum class Command {
  Generate,
  Chat,
  Serve,
  Inspect,
  Bench,
  Perplexity,
  Score,
  Compare,
  Selftest,
  Doctor,
  Probe,
  Plans,
  Pull
};

// How to open the engine; the same for every command that runs a plan.
struct EngineFlags {
  int threads = 0;           // 0: one per core
  std::string precision;     // "", "exact" or "fast"
  std::string pin;           // "", "auto", "on" or "off"
  std::string nccl;          // likewise
  std::string kv_type;       // "", "f32", "f16" or "q8"
  std::string isa;           // "": the best
  int64_t ctx = 0;           // 0: the plan's default; kLargestCtx
  int64_t max_batch = 0;     // 0: the plan's default
  int64_t chunk_tokens = 0;  // 0: the plan's choice
  int64_t kv_budget_bytes = 0;
  int64_t expert_memory_bytes = -1;  // -1: what is free, if not all fit
  bool verify = false;
  bool huge_pages = false;
  bool check_finite = false;
  std::string record_experts;     // file; "": none
  std::vector<std::string> lora;  // FILE[:SCALE] of adapters (adapters.h)
  // No flag: the hosts of a run on several (host_run.h); null: this machine alone.
  std::shared_ptr<runtime::HostGroup> hosts;
  // Likewise: rows of logits in a pass, and who sees results of steps.
  int64_t sequence_logits = 1;
  std::function<void(const runtime::StepResult&)> on_result;
};

// How a GGUF is compiled at its first start (first_compile.h).
struct CompileFlags {
  std::vector<std::string> rules;  // YAML files, in order
  std::string target;              // file, or name of a profile
  int64_t vram_bytes = 0;          // 0: all that GPUs have
  std::string more;                // further options of ktx-compile, as a shell would have them
  bool given() const {
    return !rules.empty() || !target.empty() || vram_bytes > 0 || !more.empty();
  }
};

// What `plans` does beside listing.
struct PlansFlags {
  std::vector<std::string> remove;  // names
  int64_t keep_bytes = -1;          // -1: all
};

struct PullFlags {
  std::string model;  // hf:OWNER/NAME[:QUANT]
  bool list = false;
};

// perplexity, score and compare
struct ScoreFlags {
  std::string file;         // the text; "-": standard input
  int64_t contexts = 0;     // at most so many; 0: all
  std::string base;         // log-probabilities to compare with; "": none
  std::string save_logits;  // where to write them; "": nowhere
  // compare
  std::string other_plan;
  std::string base_precision;  // of the first plan; "": as the other's
  bool layers = false;
};

// What drafts tokens for the model (drafting.h).
struct DraftFlags {
  std::string plan;    // "": none; "on": within the model's plan
  int64_t lookup = 0;  // draft tokens from the text itself; 0: none
  int64_t most = 8;    // draft tokens of a plan in a pass
  bool adaptive = true;
  double accept = -1;  // bench: this share of draft tokens is made right; -1: what the drafter says
  bool on() const { return !plan.empty() || lookup > 0; }
  bool within() const { return plan == "on"; }
};

struct SamplingFlags {
  double temperature = 0.8;
  int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::optional<uint64_t> seed;  // none: from the clock
};

struct ReasoningFlags {
  int64_t budget = -1;  // tokens; -1: no limit
  std::string message;
};

struct ServeFlags {
  std::string config;  // file of settings
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string name;  // "": the plan's file name
  std::vector<std::string> aliases, tags;
  std::vector<std::string> sources;  // plans and folders of plans
  bool strict_model = false;
  int64_t models_max = 0;           // 0: as many as fit
  int64_t models_memory_bytes = 0;  // 0: what is free at the start
  bool models_autoload = true;
  int64_t sleep_idle_seconds = 0;  // 0: never
  bool public_models = false;
  bool edit_models = false;
  bool allow_pull = false;
  int64_t max_queue = 256;
  int64_t key_slots = 0;
  std::string pooling = "auto";  // of embeddings
  std::string tool_format = "auto";
  std::string reasoning = "auto";
  int64_t request_seconds = 0;  // 0: no limit
  int64_t drain_seconds = 30;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool share_prefixes = false;
  std::string require_signature;   // a public key or its file; "": plans need none
  bool weights_meanwhile = false;  // of a plan whose root is signed: checked while it is served
  bool sandbox = false;
  bool self_test = false;
  std::vector<std::string> cors;
  std::vector<std::string> hosts;
  std::string tls_cert, tls_key;
  int64_t max_body_bytes = 32 << 20;
  int64_t max_connections = 10000;
  std::string slot_dir;
  std::string access_log;
  std::string profile;
  int64_t profile_every = 1;
  int64_t profile_size_bytes = 0;  // 0: no limit
  bool web_ui = true;
  bool show_slots = true;
  bool verbose = false;
  bool context_shift = false;
};

// Instead of the plan's chat template.
struct ChatTemplateFlags {
  std::optional<std::string> name_or_text, file;
};

struct Options {
  Command command = Command::Chat;
  std::string plan;
  EngineFlags engine;
  CompileFlags compile;
  DraftFlags draft;
  SamplingFlags sampling;
  ReasoningFlags reasoning;  // chat and serve

  // generate
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::vector<int32_t>> prompt_ids;
  std::vector<std::string> images;  // files
  bool chat = false;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  int logprobs = 0;
  bool json = false;  // inspect, generate, perplexity, compare, selftest, doctor and plans

  // selftest
  bool quick_test = false;
  int64_t test_seconds = 0;

  // chat, serve and generate --chat
  ChatTemplateFlags chat_template;
  bool allow_control_tokens = false;  // in messages

  // chat, and generate --chat
  bool drop_when_full = false;  // chat: the oldest turns go when the context is full
  std::string system;
  std::vector<std::string> template_var_texts;  // KEY=VALUE
  nlohmann::ordered_json template_vars = nlohmann::ordered_json::object();
  bool stats = false;

  ServeFlags serve;

  // inspect
  std::string export_gguf;
  std::string diff;  // the plan that this one is compared with; "": none
  bool provenance = false, source_sha256 = false, root = false;
  std::string emit;              // "module-ir" or "step-ir"; "": neither
  std::string verify_signature;  // a public key or its file; "": none is checked
  std::string sign;              // file of a private key; "": nothing is signed
  std::string cyclonedx;         // file; "": none

  ScoreFlags score;

  PlansFlags plans;
  PullFlags pull;

  std::string probe_file;  // probe; "": stdout
  std::string probe_disk;  // a file on it; "": not measured

  // bench
  std::vector<int64_t> bench_prompt;
  std::vector<int64_t> bench_generate;
  std::vector<int64_t> bench_threads;
  std::vector<int64_t> bench_depth;  // tokens already in the cache
  std::vector<int64_t> bench_batch;  // sequences that generate side by side
  bool bench_steps = false;          // where the time goes, too
  bool bench_kernels = false;        // and that of a GPU's kernels
  std::string trace;                 // file of a trace; "": none
  int repetitions = 5;
  std::string format = "md";  // md, csv or json
};

// Nothing where there is nothing to run: `status` is then the exit status, 0 after --help and
// --version, 2 after a mistake, which stands on stderr.
std::optional<Options> parse_options(int argc, char** argv, int& status);

}  // namespace ktx::tools
