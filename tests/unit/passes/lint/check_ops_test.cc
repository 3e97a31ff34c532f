// Findings that need tensors of a type that no bundled model contains.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/unit/passes/rule_files.h"

namespace ktx::passes {
namespace {

constexpr const char* kMarlin =
    "- match:\n    name: \"^model\\\\.layers\\\\..*_proj$\"\n    class: torch.nn.Linear\n"
    "  replace:\n    class: ktransformers.operators.linear.KTransformersLinear\n"
    "    kwargs: {generate_device: cuda, generate_op: KLinearMarlin}\n";

// The codes found with all linear layers of this type, as if a GGUF held them.
std::vector<std::string> errors_with(DType dtype, rules::Dialect dialect) {
  CheckedFile file;
  build(file, source_dir() + "/tests/configs/Qwen3-8B.json");
  for (ir::Module& module : file.state.modules.modules) {
    for (ir::Param& param : module.params) {
      if (param.name == "weight" && param.rows > 1) param.dtype = dtype;
    }
  }
  file.state.check.has_gguf = true;
  file.state.check.dialect = dialect;
  rules::add_rules_text(file.state.rules, kMarlin, "rules.yaml", file.diags);
  walk(file, "check-ops");
  std::vector<std::string> codes;
  for (const Diagnostic& diag : file.diags.all()) {
    if (diag.severity == Severity::Error) codes.push_back(diag.code + " " + diag.message);
  }
  return codes;
}

TEST(CheckOps, TypesThatKTransformersCannotReadAreErrorsForItAlone) {
  for (const DType dtype : {DType::IQ3_S, DType::Q4_1, DType::MXFP4}) {
    const auto found = errors_with(dtype, rules::Dialect::KTransformers);
    ASSERT_EQ(found.size(), 1u) << name(dtype);
    EXPECT_EQ(found[0].substr(0, 5), "Q001 ");
    EXPECT_NE(found[0].find("cannot read " + std::string(name(dtype))), std::string::npos)
        << found[0];
    EXPECT_TRUE(errors_with(dtype, rules::Dialect::Ktx).empty()) << name(dtype);
  }
  EXPECT_TRUE(errors_with(DType::Q4_K, rules::Dialect::KTransformers).empty());
}

}  // namespace
}  // namespace ktx::passes
