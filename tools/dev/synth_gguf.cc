// synth-gguf: writes a GGUF with any config's real shape and random weights, for measurements
// of speed and memory without a download. The weights route evenly over experts.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "lib/input/gguf.h"
#include "lib/input/hf_config.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/dev/synth/draft_head.h"
#include "tools/dev/synth/synth_model.h"
#include "tools/dev/synth/type_mix.h"

namespace {

constexpr const char* kHelp = R"(example:
  synth-gguf ../shared/configs/Qwen3-30B-A3B.json -o qwen3-30b.gguf
  synth-gguf config.json -o small.gguf --layers 4 --types iq4_xs

usage: synth-gguf CONFIG.json -o OUT.gguf [options]
  -o FILE            the GGUF to write
  --layers N         as many layers instead of the config's
  --types MIX        {}; default q4_k_m
  --seed S           other weights; default 1
  --threads T        default: all cores
  --vocab-from GGUF  take its tokenizer instead of a synthetic one
  --skew             route unevenly
  --strong           weights by which every part of the model shows in the logits
  --unsplit-kv       MLA: attn_kv_b instead of attn_k_b and attn_v_b
  --split-experts    one tensor an expert, as in files of before April 2024
  --mtp              add a layer for multi-token prediction
  --eagle3           instead of the model, a draft head (EAGLE-3) for it
The same arguments give the same bytes, whatever the number of threads.
)";

int usage(const std::string& what) {
  fmt::print(stderr, "synth-gguf: error: {}; see --help\n", what);
  return 2;
}

int fail(const std::string& what) {
  fmt::print(stderr, "synth-gguf: error: {}\n", what);
  return 1;
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ktx;
  std::string config_path, out_path, vocabulary_path;
  synth::SynthOptions options;
  bool head = false;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--help" || arg == "-h") {
      fmt::print(fmt::runtime(kHelp), join(synth::type_mix_names(), ", "));
      return 0;
    }
    if (arg == "--skew") {
      options.skew = true;
    } else if (arg == "--strong") {
      options.strong = true;
    } else if (arg == "--unsplit-kv") {
      options.unsplit_kv = true;
    } else if (arg == "--split-experts") {
      options.split_experts = true;
    } else if (arg == "--mtp") {
      options.mtp = true;
    } else if (arg == "--eagle3") {
      head = true;
    } else if (arg == "-o" && has_value) {
      out_path = argv[++i];
    } else if (arg == "--types" && has_value) {
      options.types = argv[++i];
    } else if (arg == "--vocab-from" && has_value) {
      vocabulary_path = argv[++i];
    } else if (arg == "--layers" && has_value) {
      int64_t layers = 0;
      if (!parse_number(argv[++i], layers) || layers < 1) return usage("--layers wants a count");
      options.layers = layers;
    } else if (arg == "--seed" && has_value) {
      if (!parse_number(argv[++i], options.seed)) return usage("--seed wants a number");
    } else if (arg == "--threads" && has_value) {
      if (!parse_number(argv[++i], threads) || threads < 1 || threads > 1024) {
        return usage("--threads wants a count");
      }
    } else if (!arg.starts_with('-') && config_path.empty()) {
      config_path = arg;
    } else {
      return usage(fmt::format("argument '{}' is unknown or lacks its value", arg));
    }
  }
  if (config_path.empty() || out_path.empty()) return usage("expected CONFIG.json and -o OUT.gguf");

  const Timer timer;
  const auto config = input::HfConfig::read(config_path);
  if (!config.ok()) return fail(config.error().message);
  std::optional<input::GgufFile> vocabulary;
  if (!vocabulary_path.empty()) {
    auto opened = input::GgufFile::open(vocabulary_path, {.header_only_ok = true});
    if (!opened.ok()) return fail(opened.error().message);
    vocabulary = opened.take();
    options.vocabulary = &*vocabulary;
  }
  const auto writer =
      head ? synth::synthesise_head(*config, options) : synth::synthesise(*config, options);
  if (!writer.ok()) return fail(writer.error().message);
  const Status written = writer->write(out_path, threads, /*sync=*/false);
  if (!written.ok()) return fail(written.error().message);
  fmt::print(stderr, "{}: {} in {:.1f} s\n", out_path, human_bytes(writer->file_size()),
             timer.seconds());
  return 0;
}
