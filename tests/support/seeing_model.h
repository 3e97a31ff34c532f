// A small model that takes images, as a plan: Gemma 3's with a tower of random weights.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/draft_plans.h"
#include "tests/support/image_samples.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tower_gguf.h"

namespace ktx::testing {

inline constexpr int64_t kSeenTokens = 9;  // of an image

// A chat template that shows images; that of the small model does not.
inline constexpr const char* kSeeingTemplate =
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{% if m.content is string "
    "%}{{ m.content }}{% else %}{% for part in m.content %}{% if part.type == 'image' "
    "%}<start_of_image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif "
    "%}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";

// Its file, in the folder.
inline std::string seeing_template(const TempDir& dir) {
  const std::string path = dir.path("template.jinja");
  std::ofstream(path, std::ios::binary) << kSeeingTemplate;
  return path;
}

// m.ktxplan in the folder.
inline std::string compile_seeing(const TempDir& dir, const std::vector<std::string>& more = {}) {
  const std::string plan = dir.path("m.ktxplan"), projector = dir.path("mmproj.gguf");
  EXPECT_TRUE(write_tower(projector).ok());
  std::vector<std::string> line = {"--mmproj", projector};
  line.insert(line.end(), more.begin(), more.end());
  compile_with(test_model_gguf("gemma3"), plan, line);
  return plan;
}

// The file of a sample (kImageSamples), in the folder.
inline std::string image_file(const TempDir& dir, size_t sample) {
  const std::string path = dir.path("image-" + std::to_string(sample));
  std::ofstream(path, std::ios::binary) << from_base64(kImageSamples[sample].base64);
  return path;
}

}  // namespace ktx::testing
