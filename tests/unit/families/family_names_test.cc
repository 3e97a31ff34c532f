// A family is named in its own file of lib/families and nowhere else in the sources.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "lib/families/class_names.h"
#include "lib/families/config_form.h"
#include "lib/support/strings.h"
#include "tests/support/paths.h"

namespace ktx::families {
namespace {

namespace fs = std::filesystem;

// Tokenizers, chat templates and forms of tool calls have names of their own, and some
// sound like a family's.
const char* const kOtherNames[] = {"lib/families/", "lib/text/",
                                   "tools/dev/synth/synth_vocabulary.cc"};

bool is_of_other_names(const std::string& file) {
  return std::ranges::any_of(kOtherNames, [&](const char* p) { return file.starts_with(p); });
}

std::set<std::string> quoted_names() {
  std::set<std::string> names;
  for (const Family* family : all_families()) {
    for (const std::string name : {family->architecture, family->gguf_arch}) {
      names.insert('"' + name + '"');
    }
    for (std::string_view type : split(family->model_types, ' ')) {
      names.insert(fmt::format("\"{}\"", type));
    }
  }
  return names;
}

std::string without_comment(const std::string& line) {
  return line.substr(0, line.find("// "));
}

TEST(FamilyNames, StandInTheFamilysOwnFileOnly) {
  const std::set<std::string> names = quoted_names();
  int files = 0;
  for (const char* top : {"lib", "tools", "kernels"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(source_dir()) / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".def" && extension != ".cu") {
        continue;
      }
      const std::string file = fs::relative(entry.path(), source_dir());
      if (is_of_other_names(file)) continue;
      ++files;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        const std::string code = without_comment(line);
        for (const std::string& name : names) {
          EXPECT_EQ(code.find(name), code.npos) << file << " names " << name << ": " << line;
        }
      }
    }
  }
  EXPECT_GT(files, 300);
}

// Except that a form of another family shares an architecture (Nemotron 3): the config decides.
TEST(FamilyTable, NamesAreUnique) {
  std::set<std::string> seen;
  for (const Family* family : all_families()) {
    const bool form = std::ranges::any_of(config_forms(), [&](const ConfigForm& each) {
      const Family* const of = find_model_type(each.model_type);
      return of != nullptr && of != family && each.becomes == family->first_model_type() &&
             std::string_view(of->architecture) == family->architecture;
    });
    EXPECT_EQ(seen.insert(family->architecture).second, !form) << family->architecture;
    for (std::string_view type : split(family->model_types, ' ')) {
      EXPECT_TRUE(seen.emplace(type).second) << type;
    }
  }
}

// At most one family of an architecture has no signs: it takes what none of the others claims.
TEST(FamilyTable, GgufsOfOneArchitectureCanBeToldApart) {
  std::set<std::string> without_signs;
  for (const Family* family : all_families()) {
    if (!family->gguf_signs.empty()) continue;
    EXPECT_TRUE(without_signs.insert(family->gguf_arch).second) << family->gguf_arch;
  }
}

TEST(FamilyTable, EveryFamilyHasAModelTypeAndItsExpertKeyAmongItsKeys) {
  for (const Family* family : all_families()) {
    SCOPED_TRACE(family->architecture);
    EXPECT_FALSE(family->first_model_type().empty());
    EXPECT_TRUE(family->has_config_key("hidden_size"));
    if (family->experts.layers == LayerPattern::AllDense) continue;
    EXPECT_TRUE(family->has_config_key(family->experts.count_key));
    EXPECT_TRUE(family->has_config_key(family->experts.width_key));
  }
}

TEST(OwnClasses, ComeFromTheTreeWithoutTorchs) {
  const Family* family = find_architecture("DeepseekV3ForCausalLM");
  ASSERT_NE(family, nullptr);
  std::vector<std::string> classes = own_classes(*family);
  const std::set<std::string> found(classes.begin(), classes.end());
  const std::set<std::string> expected = {
      "DeepseekV3ForCausalLM",
      "DeepseekV3Model",
      "DeepseekV3PreTrainedModel",
      "DeepseekV3DecoderLayer",
      "DeepseekV3Attention",
      "DeepseekV3FlashAttention2",
      "DeepseekV3RMSNorm",
      "DeepseekV3MLP",
      "DeepseekV3MoE",
      "DeepseekV3NaiveMoe",
      "DeepseekV3TopkRouter",
      "DeepseekV3RotaryEmbedding",
      "DeepseekV3LinearScalingRotaryEmbedding",
      "DeepseekV3DynamicNTKScalingRotaryEmbedding",
      "DeepseekV3YarnRotaryEmbedding",
      "MoEGate",
  };
  EXPECT_EQ(found, expected);
  EXPECT_EQ(classes.size(), expected.size());
}

}  // namespace
}  // namespace ktx::families
