// The sizes of files that were published, against what a config and a name say.
#include "lib/arch/usual_types.h"

#include <gtest/gtest.h>

#include <set>

#include "lib/arch/build_graph.h"
#include "lib/input/hf_config.h"
#include "tests/support/paths.h"

namespace ktx::arch {
namespace {

double gigabytes(const std::string& config_name, const std::string& types) {
  DiagSink diags;
  auto config = input::HfConfig::read(source_dir() + "/tests/configs/" + config_name);
  EXPECT_TRUE(config.ok());
  auto graph = build_graph(*config, diags);
  EXPECT_TRUE(graph.ok());
  take_usual_types(*find_usual_types(types), *graph);
  std::set<std::string> counted;
  double bytes = 0;
  for (const ir::Module& module : graph->modules) {
    for (const ir::Param& param : module.params) {
      if (param.sources.empty() || !counted.insert(param.sources[0].tensor).second) continue;
      const auto row = row_bytes(param.dtype, param.cols);
      EXPECT_TRUE(row.has_value()) << module.path;
      bytes += static_cast<double>(row.value_or(0)) * static_cast<double>(param.rows) *
               static_cast<double>(param.matrices);
    }
  }
  return bytes / 1e9;
}

TEST(UsualTypes, GiveTheSizesOfPublishedFiles) {
  const struct {
    const char* types;
    double gigabytes;
  } kLlama31[] = {{"Q2_K", 3.18},   {"Q3_K_S", 3.66}, {"Q3_K_M", 4.02}, {"Q3_K_L", 4.32},
                  {"IQ4_XS", 4.45}, {"Q4_K_S", 4.69}, {"Q4_K_M", 4.92}, {"Q5_K_S", 5.60},
                  {"Q5_K_M", 5.73}, {"Q6_K", 6.60},   {"Q8_0", 8.54},   {"F16", 16.07}};
  for (const auto& file : kLlama31) {
    const double size = gigabytes("Llama-3.1-8B-Instruct.json", file.types);
    EXPECT_NEAR(size / file.gigabytes, 1, 0.012) << file.types << ": " << size;
  }
  EXPECT_NEAR(gigabytes("Qwen3-30B-A3B.json", "Q4_K_M") / 18.6, 1, 0.012);
  EXPECT_NEAR(gigabytes("Qwen3-30B-A3B.json", "Q8_0") / 32.5, 1, 0.012);
  EXPECT_NEAR(gigabytes("Mixtral-8x7B-Instruct-v0.1.json", "Q4_K_M") / 28.45, 1, 0.012);
}

TEST(UsualTypes, AreFoundByTheirNamesInAnyCase) {
  EXPECT_EQ(find_usual_types("q4_k_m"), find_usual_types("Q4_K_M"));
  EXPECT_EQ(find_usual_types("Q4_K_X"), nullptr);
  EXPECT_EQ(find_usual_types(""), nullptr);
}

}  // namespace
}  // namespace ktx::arch
