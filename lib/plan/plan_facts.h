// The JSON sections of a plan as small structs: what the model is, the machine
// the plan was packed for, where it came from, and its chat template.
//
//   PlanFacts facts = KTX_TRY(facts_from_json(text));   // untrusted text
//   std::string text = to_json(facts);                  // same facts, same bytes
//
// Safe for untrusted text: size and depth are bounded and every number has a
// range. An unknown key is skipped (a newer minor version may add some); a
// missing one keeps its default. Messages name the key but no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/hash.h"
#include "lib/support/result.h"

namespace ktx::plan {

inline constexpr size_t kMaxJsonBytes = 16u << 20;
inline constexpr int kMaxJsonDepth = 32;

// How an image becomes rows of a model, and where they stand in its text.
struct ImageFacts {
  int64_t size = 0;    // pixels of each side, to which an image is brought; 0: no image
  int64_t patch = 0;   // pixels of each side of a patch, a row that the tower reads
  int64_t pool = 0;    // patches of each side of a square that becomes a token
  int64_t width = 0;   // of such a token's row, or of a part of it
  std::string resize;  // how it is brought there: "bilinear" or "bicubic"
  // An image keeps its shape: `size` is the most that a side may have, sides are multiples of a
  // square's, and the numbers of patches and tokens below are those of the largest image.
  bool keeps_shape = false;
  // If it does, the least and the most pixels that it may have; 0: `size` says how many.
  int64_t least_pixels = 0, most_pixels = 0;
  bool causal = false;  // its tokens see those before them alone, as others do
  bool axes = false;    // they have positions by line and column (TokenAxis)
  // A row's parts but the first, which are added to what the first layers give.
  int64_t more_parts = 0;
  std::vector<float> mean, deviation;  // by channel: (value / 255 - mean) / deviation
  // What stands for an image in a chat template's text, and what takes its place: texts around its
  // tokens, of which control tokens are such.
  std::string mark, before, behind;
  std::string line_end;  // likewise, between two lines of its tokens
  bool operator==(const ImageFacts&) const = default;

  int64_t square() const { return patch * pool; }  // pixels of each side
  int64_t columns() const {                        // of patches, at most; as many lines
    if (patch <= 0 || pool <= 0) return 0;
    if (most_pixels > 0) return most_pixels / (square() * square()) * pool;
    return keeps_shape ? (size + square() - 1) / square() * pool : size / patch;
  }
  int64_t patches() const { return most_pixels > 0 ? columns() * pool : columns() * columns(); }
  int64_t row_width() const { return width * (1 + more_parts); }
  int64_t tokens() const { return pool > 0 ? patches() / (pool * pool) : 0; }
  int64_t patch_floats() const { return 3 * patch * patch; }
};

// An image as a tower reads it: a grid of patches, line by line.
struct ImagePatches {
  int64_t columns = 0;        // patches of a line, a multiple of ImageFacts::pool, as are the lines
  std::vector<float> floats;  // ImageFacts::patch_floats() each
};

// Facts about the model, and the defaults that the compiler's options set.
// Numbers that the steps rely on are checked against the steps at open.
struct PlanFacts {
  std::string architecture;  // of the GGUF: "qwen3moe"
  std::string family;        // "Qwen3MoeForCausalLM"
  std::string name;          // general.name, may be empty
  int64_t vocab_size = 0;    // token ids are below it
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t context_length = 0;  // what the model was made for
  int64_t rotary_ctx = 0;      // the longest context that its rotary frequencies are for; 0: any
  int64_t parameters = 0;      // weights of the source, for the columns of bench
  // index in Values: F32, one row per output, output_width() wide
  uint32_t logits_value = 0;
  // Likewise: F32, one row per token, hidden_size wide each: hidden states that stay until the end
  // of a pass, for a drafter. A drafter's own: what it reads further on in their place.
  std::vector<uint32_t> hidden_values;
  // A drafter that reads hidden states of its model: the floats that come with each token, those of
  // the model behind the token before, then hidden_size of its own where it keeps some. 0: a model.
  int64_t given_width = 0;
  // Which of the model's: what that layer reads (the number of layers: what the last one gives), or
  // -1, what the final norm gives.
  std::vector<int32_t> given_taps;
  // Logits are of so many tokens, those of section draft-tokens; 0: of all.
  int64_t draft_vocab = 0;
  // A token may come with a row that replaces its embedding: one of an image.
  bool takes_images = false;
  ImageFacts image;  // of a tower, and of the plan that it stands in
  // How the hidden states of a text's tokens become one, as the model's makers did it: "mean",
  // "cls" (the first), "last"; "rank": its scores; empty: not said.
  std::string pooling;
  int64_t scores = 0;    // of a text, instead of logits; 0: none
  bool encoder = false;  // a text is one pass, each token sees all of it, and there are no logits
  int64_t bos_id = -1;   // -1: none
  int64_t eos_id = -1;
  // Millionths of the activations of routed experts that GPUs were expected to serve when the plan
  // was made; -1: the CPU all, or GPUs all.
  int64_t gpu_expert_ppm = -1;
  // The most of a layer's experts that comes to a GPU at a time in long prompts (stream_slots.h).
  std::string stream_slots = "layer";
  // For passes that stream: what the CPU computes beside the GPU (lib/program/joint_experts.h).
  int64_t joint_tokens = 0;
  bool lossy = false;  // true: re-quantised weights, no --export-gguf
  // Adapters in the weights, which are no longer those of the GGUF: "poet at scale 0.5".
  std::vector<std::string> merged;

  // Defaults, which ktx-run may override.
  int64_t default_ctx = 4096;      // per sequence, at most context_length
  int64_t max_batch = 1;           // sequences at once
  int64_t chunk_tokens = 512;      // of prompts, in one step
  int64_t kv_budget_bytes = 0;     // 0: no limit but memory
  std::string kv_type = "F16";     // "F32", "F16" or "Q8_0"
  std::string precision = "fast";  // "exact" or "fast"
  bool operator==(const PlanFacts&) const = default;

  // The width of the last step's rows: logits, scores, or what an encoder without scores gives.
  int64_t output_width() const {
    if (is_tower()) return image.row_width();
    return scores > 0 ? scores : encoder ? hidden_size : draft_vocab > 0 ? draft_vocab : vocab_size;
  }
  bool reads_hidden() const { return given_width > 0; }
  // The width of the model's states alone.
  int64_t given_states() const { return given_width - (hidden_values.empty() ? 0 : hidden_size); }
  bool is_tower() const { return image.size > 0 && !takes_images; }
  bool gives_logits() const { return scores == 0 && !encoder; }
};

// Facts about the machine, nothing measured.
struct PlanTarget {
  std::string name;                       // "host", or the target file's own name
  std::string isa = "scalar";             // best ISA of the CPU it was packed for
  std::vector<std::string> required_isa;  // what the layouts cannot do without; empty: nothing
  struct Device {
    std::string name;          // "cpu", "cuda:0", "b/cpu"
    int64_t memory_bytes = 0;  // 0: not stated
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;
  // The machines that run the plan together, in the order of their ranks (plan_hosts.h).
  struct Host {
    std::string name;
    int64_t memory_bytes = 0;  // 0: not stated
    bool operator==(const Host&) const = default;
  };
  std::vector<Host> hosts;  // empty: one machine
  bool operator==(const PlanTarget&) const = default;
};

inline constexpr size_t kMaxGeneral = 128;
inline constexpr size_t kMaxGeneralBytes = 2048;

// Where the plan came from. No paths, no names of files, no times: the same
// inputs give the same bytes.
struct PlanProvenance {
  std::string ktx_version;
  struct Input {
    std::string what;  // "gguf", "config", "rules", "tokenizer", "template"
    int64_t size_bytes = 0;
    Hash128 hash;  // of the whole file; of the header for "gguf"
    bool operator==(const Input&) const = default;
  };
  std::vector<Input> inputs;
  std::vector<std::string> options;  // those that change bytes: "--trust=gguf"
  // What the GGUF says of the model, its keys "general.*" without that: "license",
  // "base_model.0.name", "repo_url". Nothing checks it. At most kMaxGeneral of at most
  // kMaxGeneralBytes each.
  std::map<std::string, std::string> general;
  bool operator==(const PlanProvenance&) const = default;
};

struct PlanChatTemplate {
  std::string source;    // Jinja; empty: the model has none
  std::string bos, eos;  // the strings that templates know as bos_token and eos_token
  std::map<std::string, std::string> named;  // others by name: "tool_use"
  bool operator==(const PlanChatTemplate&) const = default;
};

// Why the plan cannot generate text, and what to do instead; empty: it can.
std::string no_text_reason(const PlanFacts& facts);

std::string to_json(const PlanFacts& facts);
std::string to_json(const PlanTarget& target);
std::string to_json(const PlanProvenance& provenance);
std::string to_json(const PlanChatTemplate& chat_template);

Result<PlanFacts> facts_from_json(std::string_view text);
Result<PlanTarget> target_from_json(std::string_view text);
Result<PlanProvenance> provenance_from_json(std::string_view text);
Result<PlanChatTemplate> chat_template_from_json(std::string_view text);

}  // namespace ktx::plan
