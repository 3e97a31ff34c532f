// Models with states of a fixed size: trained ones of delta nets, and synthetic ones of state
// spaces and short convolutions.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lib/input/gguf.h"
#include "lib/input/hf_config.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {

inline constexpr const char* kStateModels[] = {"qwen3_next",     "qwen35moe", "granitehybrid",
                                               "nemotron_h_moe", "falcon_h1", "mamba2",
                                               "lfm2_moe",       "jamba"};

// The model's GGUF, which is written into `dir` where it is a synthetic one, with the tokenizer of
// a trained one; "" where neither is there.
inline std::string state_model_gguf(const std::string& name, const TempDir& dir) {
  if (std::string trained = test_model_gguf(name); !trained.empty()) return trained;
  const std::string file = source_dir() + "/tests/models/synthetic/" + name + "/config.json";
  const std::string words = test_model_gguf("qwen3_next");
  if (!std::filesystem::exists(file) || words.empty()) return "";
  auto json = nlohmann::json::parse(read_file(file));
  json["vocab_size"] = 2048;
  auto config = input::HfConfig::parse(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  const auto vocabulary = input::GgufFile::open(words);
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  const auto writer =
      synth::synthesise(*config, {.types = "f32", .strong = true, .vocabulary = &*vocabulary});
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE(writer->write(dir.path("synthetic.gguf")));
  return dir.path("synthetic.gguf");
}

}  // namespace ktx::testing
