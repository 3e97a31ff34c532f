// Names that rule files may use: operator classes, ops, kwargs, backends, and older names of
// all of these. They are looked up in tables, never imported or run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

// What an operator class takes the place of, or what an op computes.
enum class Replaces { Any, Linear, Experts, Moe, Gate, Attention, Rotary, Norm, Mlp, Model };
std::string_view name(Replaces replaces);  // "a linear layer"

// The KTransformers run mode whose calling convention something has.
enum class Mode { Any, Plain, Serve };
enum class Vendor { None, Ascend, Intel };
std::string_view name(Vendor vendor);  // "Ascend NPUs"
enum class OpDevice { Any, Gpu, Cpu };

enum class OpNote {
  Nothing,
  KeepsCodes,     // nothing is re-quantised
  NoSuchWeights,  // a GGUF holds no weights of its kind
  NoTraining,     // the backward pass is left out
  Approximate,    // exact attention instead
  Gqa,            // grouped-query attention, not latent
  Yarn,
  PlainRope,
};

struct OpInfo {
  std::string_view name;
  Replaces computes;
  std::string_view becomes;  // "marlin", "dense", "cpu", "rows", "auto"; "" = none
  OpDevice device;
  Mode mode;
  Vendor vendor;
  int min_cc;  // compute capability times ten, 0: any
  OpNote note;
  std::string_view sentence;
};

struct OperatorInfo {
  std::string_view path;  // "linear.KTransformersLinear", below "ktransformers.operators."
  Replaces replaces;
  Mode mode;
  Vendor vendor;
  OpNote note;
  std::string_view config_keys;  // separated by spaces
  std::string_view sentence;

  std::string_view short_name() const;
};

enum class KwargType { Device, Op, Bool, Int, Text, Backend, DeviceMap };
std::string_view name(KwargType type);
enum class KwargUse { Honoured, Ready, Ignored };

struct KwargInfo {
  std::string_view name;
  KwargType type;
  KwargUse use;
  std::string_view sentence;
};

struct BackendInfo {
  std::string_view name;
  std::string_view isa;
  bool bf16_only;
};

std::span<const OpInfo> all_ops();
std::span<const OperatorInfo> all_operators();
std::span<const KwargInfo> all_kwargs();
std::span<const BackendInfo> all_backends();

// Null when unknown. The operator may be dotted or short.
const OpInfo* find_op(std::string_view name);
const OperatorInfo* find_operator(std::string_view name);
const KwargInfo* find_kwarg(std::string_view name);
const BackendInfo* find_backend(std::string_view name);

// Today's name of one that older releases used, or "". Dotted names keep only
// their last part.
std::string_view new_name_of(std::string_view old_name);

// Candidates for did_you_mean.
std::vector<std::string> op_names();
std::vector<std::string> operator_names(bool dotted);
std::vector<std::string> kwarg_names();
std::vector<std::string> backend_names();

std::string_view last_part(std::string_view dotted);  // "a.b.C" -> "C"

}  // namespace ktx::rules
