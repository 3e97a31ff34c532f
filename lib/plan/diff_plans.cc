#include "lib/plan/diff_plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"
#include "lib/plan/tensor_parts.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"

namespace ktx::plan {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Texts = std::map<std::string, std::string>;

// Names of tensors and modules are whole.
std::string shown(std::string_view text) {
  return printable(text, 400);
}

// "model.layers.12.mlp" -> {"model.layers.#.mlp", 12}: the first number between dots.
std::pair<std::string, int64_t> split_layer(const std::string& name) {
  for (size_t at = name.find('.'); at != name.npos; at = name.find('.', at + 1)) {
    const size_t end = name.find_first_not_of("0123456789", at + 1);
    if (end == at + 1 || (end != name.npos && name[end] != '.')) continue;
    const size_t digits = (end == name.npos ? name.size() : end) - at - 1;
    if (digits == 0 || digits > 9) continue;
    return {name.substr(0, at + 1) + "#" + (end == name.npos ? "" : name.substr(end)),
            std::stoll(name.substr(at + 1, digits))};
  }
  return {name, -1};
}

// {0, 1, 2, 5} -> "0-2,5".
std::string ranges(const std::vector<int64_t>& layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (!out.empty()) out += ",";
    out += end == i ? std::to_string(layers[i]) : fmt::format("{}-{}", layers[i], layers[end]);
    i = end + 1;
  }
  return out;
}

// Layers whose differences are the same become one line.
std::vector<PlanDifference> join_layers(const std::vector<PlanDifference>& all) {
  std::map<std::array<std::string, 3>, std::vector<int64_t>> layers;
  std::vector<std::array<std::string, 3>> order;
  for (const PlanDifference& each : all) {
    const auto [name, layer] = split_layer(each.name);
    const std::array<std::string, 3> key = {name, each.a, each.b};
    const auto [at, added] = layers.try_emplace(key);
    if (added) order.push_back(key);
    if (layer >= 0) at->second.push_back(layer);
  }
  std::vector<PlanDifference> joined;
  for (const auto& key : order) {
    std::vector<int64_t>& numbers = layers[key];
    std::ranges::sort(numbers);
    std::string name = key[0];
    if (!numbers.empty()) name.replace(name.find('#'), 1, ranges(numbers));
    joined.push_back({name, key[1], key[2]});
  }
  return joined;
}

std::vector<PlanDifference> differences(const Texts& a, const Texts& b) {
  std::vector<PlanDifference> all;
  for (const auto& [name, text] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != text) {
      all.push_back({name, text, other == b.end() ? "" : other->second});
    }
  }
  for (const auto& [name, text] : b) {
    if (!a.contains(name)) all.push_back({name, "", text});
  }
  return all;
}

// A value as it is, or its hash where it is long.
std::string short_text(const OrderedJson& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.size() <= 60) return printable(text);
  return fmt::format("{} bytes, hash {}", text.size(),
                     to_hex(hash_bytes(std::as_bytes(std::span(text)))));
}

void add_fields(Texts& texts, const std::string& prefix, const std::string& json) {
  const OrderedJson parsed = OrderedJson::parse(json);
  for (const auto& [key, value] : parsed.items()) {
    texts[prefix + key] = short_text(value);
  }
}

// Adds the input files, each by what it is and its place among those of its kind.
void add_inputs(Texts& texts, const PlanProvenance& provenance) {
  std::map<std::string, int> count;
  for (const PlanProvenance::Input& input : provenance.inputs) {
    const std::string what = shown(input.what);
    texts[fmt::format("from {} {}", what, ++count[what])] =
        fmt::format("{} bytes, hash {}", input.size_bytes, to_hex(input.hash));
  }
}

Texts facts_of(const PlanView& plan) {
  Texts texts;
  texts["format"] = fmt::format("{}.{}", kMajor, plan.minor);
  texts["drafter"] = plan.has_drafter ? "within" : "none";
  texts["tower"] = plan.has_tower ? "within" : "none";
  texts["made by"] = printable(plan.provenance.ktx_version);
  texts["options"] = shown(join(plan.provenance.options, " "));
  add_inputs(texts, plan.provenance);
  add_fields(texts, "model ", to_json(plan.facts));
  add_fields(texts, "target ", to_json(plan.target));
  add_fields(texts, "chat template ", to_json(plan.chat_template));
  // The rest of what is read as a whole.
  constexpr std::pair<SectionId, const char*> kWhole[] = {
      {SectionId::Tokenizer, "tokenizer"}, {SectionId::GgufHeader, "header of the GGUF"}};
  for (const SectionEntry& section : plan.sections) {
    for (const auto& [id, name] : kWhole) {
      if (section.id != static_cast<uint32_t>(id)) continue;
      texts[name] = fmt::format("{} bytes, hash {}", section.size, to_hex(section.hash));
    }
  }
  // Numbers of values, which mean nothing by themselves.
  texts.erase("model logits_value");
  texts.erase("model hidden_values");
  return texts;
}

Texts join_sets(const std::map<std::string, std::set<std::string>>& sets) {
  Texts texts;
  for (const auto& [name, set] : sets) {
    texts[name] = fmt::format("{}", fmt::join(set, ", "));
  }
  return texts;
}

Texts devices_of_modules(const PlanView& plan) {
  std::map<std::string, std::set<std::string>> devices;
  for (const program::Step& step : plan.program->steps) {
    devices[shown(step.module)].insert(shown(step.device));
  }
  return join_sets(devices);
}

Texts layouts_of_tensors(const PlanView& plan) {
  std::map<std::string, std::set<std::string>> forms;
  for (const SegmentRecord& segment : plan.segments) {
    const std::string device = shown(plan.string(segment.device));
    for (uint32_t i = segment.first_blob; i < segment.first_blob + segment.blob_count; ++i) {
      const BlobRecord& blob = plan.blobs[i];
      for (uint32_t s = blob.first_slice; s < blob.first_slice + blob.slice_count; ++s) {
        const GgufTensorRecord& tensor = plan.gguf_tensors[plan.slices[s].tensor];
        forms[shown(plan.string(tensor.name))].insert(
            fmt::format("{} {} {}", device, name(static_cast<DType>(blob.dtype)),
                        name(static_cast<Layout>(blob.layout))));
      }
    }
  }
  return join_sets(forms);
}

Texts kernels_of(const PlanView& plan) {
  std::map<std::string, int64_t> counts;
  for (const program::Step& step : plan.program->steps) {
    const auto kernel = [&](int precision) {
      const std::string& family = step.kernels[precision];
      return family.empty() ? "-" : shown(family);
    };
    ++counts[fmt::format("{} {}: {}, {}", shown(step.device), info(step.op).name, kernel(0),
                         kernel(1))];
  }
  Texts texts;
  for (const auto& [name, count] : counts) texts[name] = std::to_string(count);
  return texts;
}

// Parts of the tensors of a plan, found by name.
class Tensors {
 public:
  explicit Tensors(const PlanView& plan) : plan_(plan), parts_(tensor_parts(plan)) {
    for (uint32_t t = 0; t < plan.gguf_tensors.size(); ++t) {
      numbers_.emplace(plan.string(plan.gguf_tensors[t].name), t);
    }
  }
  const PlanView& plan() const { return plan_; }
  const std::map<std::string_view, uint32_t>& numbers() const { return numbers_; }
  std::span<const TensorPart> parts(uint32_t tensor) const {
    return parts_of_tensor(parts_, tensor);
  }
  bool whole(uint32_t tensor) const { return cover_tensor(plan_, tensor, parts(tensor)); }
  // Source bytes from `at` on: as many as are in one part, at most `most`.
  Result<std::span<const std::byte>> read(uint32_t tensor, uint64_t at, uint64_t most,
                                          std::vector<std::byte>& buffer) const {
    for (const TensorPart& part : parts(tensor)) {
      if (at < part.begin || at >= part.begin + part.size) continue;
      buffer.resize(std::min(most, part.begin + part.size - at));
      KTX_TRY(read_part(plan_, part, at - part.begin, buffer));
      return std::span<const std::byte>(buffer);
    }
    KTX_ASSERT(false);
    return Error{"unreachable"};
  }

 private:
  const PlanView& plan_;
  std::vector<TensorPart> parts_;
  std::map<std::string_view, uint32_t> numbers_;
};

// Layout, format and hash of each blob that a tensor is in, and where.
std::set<std::string> packed_as(const PlanView& plan, std::span<const TensorPart> parts) {
  std::set<std::string> all;
  for (const TensorPart& part : parts) {
    const BlobRecord& blob = plan.blobs[part.blob];
    all.insert(fmt::format("{} {} {} {} {} {}", blob.layout, blob.dtype, part.begin, part.size,
                           part.offset, to_hex(blob.hash)));
  }
  return all;
}

// Whether the source's bytes are the same; both have all of them, and as many.
Result<bool> same_bytes(const Tensors& a, uint32_t in_a, const Tensors& b, uint32_t in_b) {
  constexpr uint64_t kAtOnce = 1 << 20;
  const uint64_t size = a.plan().gguf_tensors[in_a].size;
  std::vector<std::byte> of_a, of_b;
  for (uint64_t at = 0; at < size;) {
    const auto found = KTX_TRY(a.read(in_a, at, kAtOnce, of_a));
    const auto other = KTX_TRY(b.read(in_b, at, found.size(), of_b));
    if (std::memcmp(found.data(), other.data(), other.size()) != 0) return false;
    at += other.size();
  }
  return true;
}

std::string form_of(const GgufTensorRecord& tensor) {
  return fmt::format("{} {} x {}", name(static_cast<DType>(tensor.dtype)), tensor.rows,
                     tensor.row_elems);
}

using Both = std::pair<std::string, std::string>;
using Unlike = std::optional<Both>;  // nothing: they are alike

// The blobs that have a rounded tensor.
std::string rounded_as(const Tensors& of, uint32_t tensor) {
  std::set<std::string> hashes;
  for (const SliceRecord& slice : of.plan().slices) {
    if (slice.tensor == tensor) hashes.insert(to_hex(of.plan().blobs[slice.blob].hash));
  }
  return fmt::format("rounded, hash {}", fmt::join(hashes, ", "));
}

Result<Unlike> compare_tensor(const Tensors& a, uint32_t in_a, const Tensors& b, uint32_t in_b) {
  const auto unlike = [](std::string of_a, std::string of_b) {
    return of_a == of_b ? Unlike() : Unlike(Both{std::move(of_a), std::move(of_b)});
  };
  const Unlike forms =
      unlike(form_of(a.plan().gguf_tensors[in_a]), form_of(b.plan().gguf_tensors[in_b]));
  if (forms) return forms;
  const bool whole_a = a.whole(in_a), whole_b = b.whole(in_b);
  if (!whole_a || !whole_b) {
    if (whole_a) return unlike("as in the GGUF", "rounded");
    if (whole_b) return unlike("rounded", "as in the GGUF");
    return unlike(rounded_as(a, in_a), rounded_as(b, in_b));
  }
  if (packed_as(a.plan(), a.parts(in_a)) == packed_as(b.plan(), b.parts(in_b))) return Unlike();
  if (KTX_TRY(same_bytes(a, in_a, b, in_b))) return Unlike();
  return Unlike(Both{"other values", "other values"});
}

Status compare_weights(const PlanView& a, const PlanView& b, PlanDiff& diff) {
  if (a.part_of || b.part_of) {
    return Error{"the file has the weights of one host alone; compare whole plans"};
  }
  const Tensors of_a(a), of_b(b);
  std::vector<PlanDifference> all;
  for (const auto& [name, in_a] : of_a.numbers()) {
    ++diff.tensors;
    const auto found = of_b.numbers().find(name);
    if (found == of_b.numbers().end()) {
      all.push_back({shown(name), form_of(a.gguf_tensors[in_a]), ""});
      continue;
    }
    const Unlike unlike = KTX_TRY(compare_tensor(of_a, in_a, of_b, found->second));
    if (unlike) {
      all.push_back({shown(name), unlike->first, unlike->second});
    } else {
      ++diff.equal_tensors;
    }
  }
  for (const auto& [name, in_b] : of_b.numbers()) {
    if (of_a.numbers().contains(name)) continue;
    ++diff.tensors;
    all.push_back({shown(name), "", form_of(b.gguf_tensors[in_b])});
  }
  diff.weights = join_layers(all);
  return {};
}

struct DiffPart {
  const char* name;
  std::vector<PlanDifference> PlanDiff::*rows;
};
constexpr DiffPart kDiffParts[] = {{"facts", &PlanDiff::facts},
                                   {"placement", &PlanDiff::placement},
                                   {"layouts", &PlanDiff::layouts},
                                   {"weights", &PlanDiff::weights},
                                   {"kernels", &PlanDiff::kernels}};

}  // namespace

Result<PlanDiff> diff_plans(const PlanView& a, const PlanView& b) {
  PlanDiff diff;
  diff.facts = differences(facts_of(a), facts_of(b));
  diff.placement = join_layers(differences(devices_of_modules(a), devices_of_modules(b)));
  diff.layouts = join_layers(differences(layouts_of_tensors(a), layouts_of_tensors(b)));
  diff.kernels = differences(kernels_of(a), kernels_of(b));
  KTX_TRY(compare_weights(a, b, diff));
  return diff;
}

std::string diff_tables(const PlanDiff& diff) {
  std::string out;
  for (const DiffPart& part : kDiffParts) {
    const std::vector<PlanDifference>& rows = diff.*part.rows;
    if (rows.empty()) continue;
    TextTable table({{"what", TextTable::Left},
                     {"first plan", TextTable::Left},
                     {"second plan", TextTable::Left}});
    for (const PlanDifference& row : rows) {
      table.add({row.name, row.a.empty() ? "-" : row.a, row.b.empty() ? "-" : row.b});
    }
    out += fmt::format("{}\n{}\n", part.name, table.plain("  "));
  }
  out += fmt::format("{} of {} tensors have the same values\n", diff.equal_tensors, diff.tensors);
  if (diff.equal()) out += "the plans say the same\n";
  return out;
}

std::string diff_json(const PlanDiff& diff) {
  OrderedJson json = {
      {"equal", diff.equal()}, {"tensors", diff.tensors}, {"equal_tensors", diff.equal_tensors}};
  for (const DiffPart& part : kDiffParts) {
    json[part.name] = OrderedJson::array();
    for (const PlanDifference& row : diff.*part.rows) {
      json[part.name].push_back({{"what", row.name}, {"first", row.a}, {"second", row.b}});
    }
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace ktx::plan
