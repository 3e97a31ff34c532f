// The tables of names agree with each other and with the sources.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "lib/rules/checks.h"
#include "lib/rules/families.h"
#include "lib/rules/operators.h"
#include "tests/support/paths.h"

namespace ktx::rules {
namespace {

TEST(RuleTables, OldNamesLeadToNewOnes) {
  for (const char* old_name : {"KTransformerLinear", "MLPCPUExperts", "generate_linear_type"}) {
    const std::string_view now = new_name_of(old_name);
    EXPECT_TRUE(find_operator(now) || find_op(now) || find_kwarg(now)) << old_name;
  }
  EXPECT_EQ(new_name_of("KLinearMarlin"), "");
}

TEST(RuleTables, OperatorsAreFoundByEverySpelling) {
  for (const OperatorInfo& row : all_operators()) {
    EXPECT_EQ(find_operator("ktransformers.operators." + std::string(row.path))->path, row.path);
    EXPECT_NE(find_operator(row.short_name()), nullptr);
  }
  EXPECT_EQ(find_operator("ktransformers.operators.linear.KMoEGate"), nullptr);
  EXPECT_NE(find_operator("ktransformers.operators.ascend_gate.KDeepseekV3GateA2"), nullptr);
}

TEST(RuleTables, DottedClassesBelongToOneFamily) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(families_of("ktransformers.models.modeling_deepseek_v3.MoEGate"),
            Names{"DeepseekV3ForCausalLM"});
  EXPECT_EQ(families_of("MoEGate"),
            (Names{"DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"}));
  EXPECT_TRUE(families_of("torch.nn.Linear").empty());
  EXPECT_TRUE(families_of("ktransformers.operators.experts.KExpertsCPU").empty());
}

// Every code that the sources report has a row, so that --explain-code knows it.
TEST(RuleTables, EveryCodeInTheSourcesHasARow) {
  namespace fs = std::filesystem;
  const auto is_code = [](std::string_view text) {
    return text.size() >= 6 && text[0] == '"' && text[5] == '"' &&
           std::string_view("CDIMNOQRSTVY").find(text[1]) != std::string_view::npos &&
           text.substr(2, 3).find_first_not_of("0123456789") == std::string_view::npos;
  };
  for (const char* folder : {"lib", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(source_dir()) / folder)) {
      if (entry.path().extension() != ".cc") continue;
      std::ifstream in(entry.path());
      std::stringstream stream;
      stream << in.rdbuf();
      const std::string text = stream.str();
      for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
        const std::string_view rest = std::string_view(text).substr(at);
        if (!is_code(rest)) continue;
        EXPECT_TRUE(find_check(rest.substr(1, 4))) << rest.substr(0, 6) << " in " << entry.path();
      }
    }
  }
}

TEST(RuleTables, CodesAreUnique) {
  std::set<std::string_view> codes;
  for (const CheckInfo& check : all_checks()) EXPECT_TRUE(codes.insert(check.code).second);
}

TEST(RuleTables, WarningFlags) {
  DiagPolicy policy;
  EXPECT_TRUE(add_warning_flag("error", policy));
  EXPECT_TRUE(add_warning_flag("no-error=KTX-R001", policy));
  EXPECT_TRUE(add_warning_flag("no-R002", policy));
  EXPECT_TRUE(policy.warnings_are_errors);
  EXPECT_TRUE(policy.not_errors.contains("R001"));
  EXPECT_TRUE(policy.off.contains("R002"));
  EXPECT_FALSE(add_warning_flag("no-KTX-R999", policy));
  EXPECT_FALSE(add_warning_flag("no-Y001", policy));
  EXPECT_FALSE(add_warning_flag("all", policy));
}

}  // namespace
}  // namespace ktx::rules
