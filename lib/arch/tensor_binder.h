// Binds parameters to the tensors of a GGUF: checks presence, shape and type, and finally reports
// tensors that no module used.
//
// Without a GGUF (a config alone) every tensor counts as present, with the shape that the config
// implies and the type it usually has (usual_types.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/arch/usual_types.h"
#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/support/diag.h"

namespace ktx::arch {

struct ParamShape {
  int64_t cols = 0;
  int64_t rows = 1;
  int64_t matrices = 1;
};

class TensorBinder {
 public:
  // `gguf` may be null; it must outlive the binder.
  TensorBinder(const input::GgufFile* gguf, ModelShape model, DiagSink& diags)
      : gguf_(gguf), model_(model), diags_(diags) {}

  // `tensors`: names with shorthands expanded but for "{expert}", alternatives
  // separated by " | ". `purpose` is for messages: "queries".
  ir::Param bind(std::string_view param, std::string_view tensors, const ParamShape& shape,
                 int32_t layer, std::string_view purpose);
  // The rows [first, first + rows) of a tensor of `all_rows` rows; of a vector, elements.
  ir::Param bind_rows(std::string_view param, const std::string& tensor, const ParamShape& shape,
                      int64_t first, int64_t all_rows, std::string_view purpose);
  // Gate or up (second half) out of a tensor that holds both of every expert.
  ir::Param bind_half(std::string_view param, const std::string& tensor, const ParamShape& shape,
                      bool second, std::string_view purpose);

  bool has(std::string_view tensor) const { return gguf_ != nullptr && gguf_->has(tensor); }
  void use(std::string_view tensor) { used_.emplace(tensor); }

  // The factor of the product with `weights`, which NVFP4 files hold beside them ("X.scale" of
  // "X.weight"); 1 where there is none, or where only the header is there.
  float bind_factor(const std::string& weights);
  // A tensor of one number that is worked into the graph; 1 as above.
  float bind_number(const std::string& tensor, std::string_view purpose);

  // Names of tensors that a file may have and nothing reads; `reason` is a literal.
  void leave_out(const std::string& tensor, std::string_view reason) {
    left_out_.emplace(tensor, reason);
  }

  // Tensors that no parameter uses: those with a known reason are returned, others
  // are warned about (biases of modules and factors of weights are errors: leaving one out is a
  // wrong model).
  std::vector<ir::ModuleGraph::ExtraTensor> leftovers(int32_t layers, bool longrope);

 private:
  void fail(std::string what, std::string code = "T004");
  // `integers`: a table of numbers, else a weight.
  const input::GgufTensor* find(const std::string& tensor, std::string_view purpose,
                                const ParamShape& shape, bool integers = false);
  bool check_shape(const input::GgufTensor& tensor, const ParamShape& shape,
                   std::string_view purpose);
  ir::Param bind_each_expert(std::string_view param, const std::string& pattern,
                             const ParamShape& shape, std::string_view purpose);

  const input::GgufFile* gguf_;
  ModelShape model_;
  DiagSink& diags_;
  std::unordered_set<std::string> used_, factors_;
  std::unordered_map<std::string, std::string_view> left_out_;
  int failures_ = 0;
};

}  // namespace ktx::arch
