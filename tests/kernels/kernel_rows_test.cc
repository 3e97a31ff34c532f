// No kernel without a row, no row that nothing can choose, and a row for each number of tokens.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/built_for.h"
#include "kernels/matmul/matmul_selectors.h"
#include "lib/formats/layout_size.h"
#include "tests/kernels/kernel_cases.h"
#include "tests/support/paths.h"

namespace ktx::kernels {
namespace {

// A row of kernels.def, matmul.def or row_ops.def, whose kernels are one template. A product's
// selector says whether it has a kernel for a dtype; the other kernels take every dtype that their
// family takes, and any number of tokens.
struct Row {
  std::string_view family;
  Isa isa;
  int64_t least, most;  // tokens
  std::string_view function;
  bool (*has_kernel)(DType);
};
bool always(DType) {
  return true;
}
template <auto select>
bool selects(DType dtype) {
  return select(dtype) != nullptr;
}

constexpr Row kRows[] = {
#define KTX_ROW_OP(op, family, arithmetic, sentence) \
  {family, Isa::Scalar, 1, kAnyTokens, "rows_scalar", always},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
#define KTX_KERNEL(Op, family, isa, function) \
  KTX_BUILT(isa, {family, Isa::isa, 1, kAnyTokens, #function, always}, )
#include "kernels/kernels.def"
#undef KTX_KERNEL
#define KTX_MATMUL(family, isa, least, most, selector) \
  KTX_BUILT(isa, {family, Isa::isa, least, most, #selector, selects<selector>}, )
#define KTX_MATMUL_TRANSPOSED(family, isa, selector) \
  KTX_BUILT(isa, {family, Isa::isa, 1, kAnyTokens, #selector, selects<selector>}, )
#include "kernels/matmul/matmul.def"
#undef KTX_MATMUL_TRANSPOSED
#undef KTX_MATMUL
};

// A step as choose-kernels describes it: panels for the formats that have them, in either order,
// and BF16 inputs where the weights allow it.
std::vector<FamilyQuery> steps() {
  constexpr StepOp kReadPanels[] = {StepOp::Embed, StepOp::Matmul, StepOp::MatmulHeads,
                                    StepOp::ExpertsGateUp, StepOp::ExpertsDown};
  std::vector<FamilyQuery> all;
  for (const StepOpInfo& op : all_step_ops()) {
    if (op.op == StepOp::AllReduce) continue;  // of GPUs alone
    const bool heads = op.op == StepOp::MatmulHeads;
    const bool panels = std::ranges::find(kReadPanels, op.op) != std::end(kReadPanels);
    for (Precision precision : {Precision::Exact, Precision::Fast}) {
      for (DType dtype : weight_dtypes()) {
        for (Layout layout : {Layout::Rows, Layout::Panel16, Layout::Panel16Stream}) {
          if (layout != Layout::Rows && !panels) continue;
          if (!matrix_bytes(layout, dtype, kPanelRows, info(dtype).block_elems)) continue;
          for (bool transposed : {false, true}) {
            // Transposed products make choose-kernels leave a weight in rows.
            if (transposed && (!heads || layout != Layout::Rows)) continue;
            for (ValueType input : {ValueType::Q8, ValueType::BF16}) {
              const bool bf16 = op.op == StepOp::Quantize || tile_bf16_takes(dtype, layout);
              if (input == ValueType::BF16 && !bf16) continue;
              all.push_back({op.op, precision, dtype, transposed, layout, input});
            }
          }
        }
      }
    }
  }
  return all;
}

// The dtypes with which choose-kernels names each family.
std::map<std::string_view, std::set<DType>> named_families() {
  std::map<std::string_view, std::set<DType>> named;
  for (const FamilyQuery& q : steps()) {
    named[kernel_family(q.op, q.precision, q.dtype, q.transposed, q.layout, q.input)].insert(
        q.dtype);
  }
  return named;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// The word that ends before `end`.
std::string_view word_before(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

// Whether the parenthesis at `open` begins the parameters of a kernel, which takes its op's
// arguments, or of a selector of products, which takes a dtype.
bool has_kernel_parameters(std::string_view text, size_t open) {
  const std::string_view list = text.substr(open + 1, text.find(')', open) - open - 1);
  if (list.starts_with("DType")) return list.find(',') == list.npos;
  constexpr std::string_view kConst = "const ";
  if (!list.starts_with(kConst)) return false;
  size_t end = kConst.size();
  while (end < list.size() && is_word(list[end])) ++end;
  return list.substr(0, end).ends_with("Args");
}

// `Type name_isa(` of the kernels and selectors that a source declares or defines.
std::vector<std::string> kernels_in(std::string_view text) {
  constexpr std::string_view kSuffixes[] = {"_scalar", "_avx2", "_avx512", "_avx512bf16",
                                            "_amx",    "_neon", "_dotprod"};
  std::vector<std::string> names;
  for (size_t open = text.find('('); open != text.npos; open = text.find('(', open + 1)) {
    const std::string_view name = word_before(text, open);
    size_t at = open - name.size();
    while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) --at;
    const std::string_view type = word_before(text, at);
    const bool is_kernel = type == "void" || (type.starts_with("Matmul") && type.ends_with("Fn"));
    const bool has_suffix = std::ranges::any_of(
        kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
    if (is_kernel && has_suffix && has_kernel_parameters(text, open)) names.emplace_back(name);
  }
  return names;
}

TEST(KernelRows, EveryKernelOfTheSourcesHasARow) {
  const std::set<std::string, std::less<>> in_rows = {
      "rows_scalar",  // and those of all processors
#define KTX_KERNEL(Op, family, isa, function) #function,
#include "kernels/kernels.def"
#undef KTX_KERNEL
#define KTX_MATMUL(family, isa, least, most, selector) #selector,
#define KTX_MATMUL_TRANSPOSED(family, isa, selector) #selector,
#include "kernels/matmul/matmul.def"
#undef KTX_MATMUL_TRANSPOSED
#undef KTX_MATMUL
  };
  std::set<std::string, std::less<>> in_sources;
  const std::filesystem::path root = source_dir() + "/kernels";
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    const std::filesystem::path& path = file.path();
    if (path.extension() != ".cc" && path.extension() != ".h") continue;
    for (const std::string& name : kernels_in(text_of(path))) {
      in_sources.insert(name);
      EXPECT_TRUE(in_rows.contains(name))
          << name << " in " << path
          << " has no row in kernels.def, matmul/matmul.def or rows/row_ops.def";
    }
  }
  EXPECT_EQ(in_sources.size(), in_rows.size()) << "kernels_in() does not see every kernel";
}

TEST(KernelRows, EveryRowIsChosenForAFamilyThatPlansName) {
  const auto named = named_families();
  for (const Row& row : kRows) {
    const auto family = named.find(row.family);
    ASSERT_NE(family, named.end()) << row.family << " is a family that no step asks for";
    EXPECT_TRUE(std::ranges::any_of(family->second, row.has_kernel))
        << row.function << " has no kernel for the weights of " << row.family;
  }
}

TEST(KernelRows, NoRowHidesAnother) {
  for (const Row& row : kRows) {
    EXPECT_TRUE(std::ranges::any_of(all_isas(), [&](const IsaInfo& i) { return i.isa == row.isa; }))
        << row.function << " needs an instruction set that no machine has";
    EXPECT_LE(row.least, row.most) << row.function << " serves no number of tokens";
    for (const Row& other : kRows) {
      if (&other == &row || other.family != row.family || other.isa != row.isa) continue;
      if (other.least > row.most || row.least > other.most) continue;
      for (DType dtype : weight_dtypes()) {
        EXPECT_FALSE(row.has_kernel(dtype) && other.has_kernel(dtype))
            << row.function << " and " << other.function << " for the same tokens and "
            << name(dtype);
      }
    }
  }
}

// A set that has rows for a dtype serves every number of tokens: no weaker set fills a gap.
TEST(KernelRows, RangesOfTokensHaveNoGap) {
  for (const Row& begin : kRows) {
    for (DType dtype : weight_dtypes()) {
      if (!begin.has_kernel(dtype)) continue;
      int64_t covered = 0;
      for (bool found = true; found && covered < kAnyTokens;) {
        found = false;
        for (const Row& row : kRows) {
          if (row.family != begin.family || row.isa != begin.isa || !row.has_kernel(dtype))
            continue;
          if (row.least != covered + 1 || row.most <= covered) continue;
          covered = row.most;
          found = true;
          break;
        }
      }
      EXPECT_EQ(covered, kAnyTokens) << begin.family << " with " << name(begin.isa) << " and "
                                     << name(dtype) << ": no row for " << covered + 1 << " tokens";
    }
  }
}

TEST(KernelRows, AProductIsMadeOfTheRowsOfTheStrongestSet) {
  for (const Row& row : kRows) {
    for (DType dtype : weight_dtypes()) {
      const auto kernel = find_matmul(row.family, dtype, row.isa);
      if (!kernel.ok() || !row.has_kernel(dtype)) continue;
      const auto range = std::ranges::find_if(kernel->ranges(), [&](const auto& r) {
        return r.name == row.function && r.least == row.least && r.most == row.most;
      });
      ASSERT_NE(range, kernel->ranges().end()) << row.function << " for " << name(dtype);
      EXPECT_EQ(kernel->of(row.least), range->run) << row.function;
      EXPECT_EQ(kernel->of(row.most), range->run) << row.function;
    }
  }
}

TEST(KernelRows, AProductSaysWhichFunctionServesHowManyTokens) {
  const MatmulFn run = [](const MatmulArgs&) {};
  const MatmulKernel::Range ranges[] = {
      {1, 1, run, "gemv"}, {2, 16, run, "skinny"}, {17, kAnyTokens, run, "gemm"}};
  EXPECT_EQ(MatmulKernel(ranges).describe(), "1: gemv, 2-16: skinny, 17-: gemm");
}

TEST(KernelRows, EachStepHasOneFamilyAndEachFamilyOneStepAtLeast) {
  const auto named = named_families();
  for (const KernelFamily& family : all_kernel_families()) {
    if (family.device == FamilyDevice::Gpu) continue;
    EXPECT_TRUE(named.contains(family.name)) << family.name << " is named for no step";
  }
  for (const FamilyQuery& q : steps()) {
    const auto count = std::ranges::count_if(all_kernel_families(),
                                             [&](const KernelFamily& f) { return fits(f, q); });
    const bool nothing = q.op == StepOp::Quantize && q.precision == Precision::Exact;
    EXPECT_EQ(count, nothing ? 0 : 1)
        << info(q.op).name << " " << name(q.dtype) << " " << name(q.layout);
  }
}

}  // namespace
}  // namespace ktx::kernels
