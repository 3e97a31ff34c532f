#include "lib/plan/plan_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "lib/formats/shape_limits.h"
#include "lib/plan/most_chunk.h"
#include "lib/support/json_nesting.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxCount = int64_t{1} << 53;  // beyond it JSON numbers lose digits elsewhere
constexpr size_t kMaxListItems = 1 << 16;

// Bytes that are no UTF-8 (a GGUF's name may hold anything) become U+FFFD.
std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Json> parse_object(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return Error{
        fmt::format("{} bytes of JSON, more than the {} allowed", text.size(), kMaxJsonBytes)};
  }
  // nlohmann's parser needs no stack, but its values are used recursively.
  if (json_nesting(text) > kMaxJsonDepth) {
    return Error{fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth)};
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{"not valid JSON"};
  if (!json.is_object()) return Error{fmt::format("JSON {}, expected an object", json.type_name())};
  return json;
}

// Reads keys of one object; remembers the first that is wrong.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  template <class T>
  void integer(const char* key, T& out, int64_t low, int64_t high) {
    const Json* value = find(key);
    if (!value) return;
    int64_t number = 0;
    if (value->is_number_unsigned()) {
      const uint64_t raw = value->get<uint64_t>();
      if (raw > static_cast<uint64_t>(high)) {
        return fail(key, fmt::format("is {}, expected {} to {}", raw, low, high));
      }
      number = static_cast<int64_t>(raw);
    } else if (value->is_number_integer()) {
      number = value->get<int64_t>();
    } else {
      return wrong_type(key, *value, "an integer");
    }
    if (number < low || number > high) {
      return fail(key, fmt::format("is {}, expected {} to {}", number, low, high));
    }
    out = static_cast<T>(number);
  }

  template <class T>
  void integers(const char* key, std::vector<T>& out, int64_t low, int64_t high) {
    each(key, [&](const Json& item) {
      if (!item.is_number_integer()) return wrong_type(key, item, "a list of integers");
      const bool huge = item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT64_MAX};
      const auto number = huge ? INT64_MAX : item.get<int64_t>();
      if (number < low || number > high) {
        return fail(key, fmt::format("has {}, expected {} to {}", item.dump(), low, high));
      }
      out.push_back(static_cast<T>(number));
    });
  }

  void numbers(const char* key, std::vector<float>& out) {
    each(key, [&](const Json& item) {
      const double number = item.is_number() ? item.get<double>() : HUGE_VAL;
      if (!(std::abs(number) <= 1e6)) return wrong_type(key, item, "a list of numbers up to 1e6");
      out.push_back(static_cast<float>(number));
    });
  }

  void text(const char* key, std::string& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_string()) return wrong_type(key, *value, "a string");
    out = value->get_ref<const std::string&>();
  }

  void boolean(const char* key, bool& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_boolean()) return wrong_type(key, *value, "true or false");
    out = value->get<bool>();
  }

  void one_of(const char* key, std::string& out, std::initializer_list<std::string_view> names) {
    std::string value = out;
    text(key, value);
    for (std::string_view name : names) {
      if (value == name) {
        out = value;
        return;
      }
    }
    fail(key, fmt::format("is '{}', expected {}", printable(value), fmt::join(names, ", ")));
  }

  void hash(const char* key, Hash128& out) {
    std::string hex;
    text(key, hex);
    if (hex.empty()) return;
    if (hex.size() != 32 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return fail(key, fmt::format("is '{}', expected 32 hexadecimal digits", printable(hex)));
    }
    out.high = std::stoull(hex.substr(0, 16), nullptr, 16);
    out.low = std::stoull(hex.substr(16), nullptr, 16);
  }

  void texts(const char* key, std::vector<std::string>& out) {
    each(key, [&](const Json& item) {
      if (!item.is_string()) return wrong_type(key, item, "a list of strings");
      out.push_back(item.get_ref<const std::string&>());
    });
  }

  // A list of objects: `read(fields, item)` fills each.
  template <class T, class F>
  void objects(const char* key, std::vector<T>& out, F&& read) {
    each(key, [&](const Json& item) {
      if (!item.is_object()) return wrong_type(key, item, "a list of objects");
      Fields fields(item);
      read(fields, out.emplace_back());
      if (!fields.error_.empty() && error_.empty())
        error_ = fmt::format("{}: {}", key, fields.error_);
    });
  }

  // An object in the object, which `read(fields, out)` fills.
  template <class T, class F>
  void object(const char* key, T& out, F&& read) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_object()) return wrong_type(key, *value, "an object");
    Fields fields(*value);
    read(fields, out);
    if (!fields.error_.empty() && error_.empty())
      error_ = fmt::format("{}: {}", key, fields.error_);
  }

  void text_map(const char* key, std::map<std::string, std::string>& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_object()) return wrong_type(key, *value, "an object");
    for (const auto& [name, item] : value->items()) {
      if (!item.is_string()) return wrong_type(key, item, "an object of strings");
      out[name] = item.get_ref<const std::string&>();
    }
  }

  Status status() const {
    if (error_.empty()) return {};
    return Error{error_};
  }

 private:
  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }
  template <class F>
  void each(const char* key, F&& visit) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_array()) return wrong_type(key, *value, "a list");
    if (value->size() > kMaxListItems) {
      return fail(key, fmt::format("has {} items, more than {}", value->size(), kMaxListItems));
    }
    for (const Json& item : *value) visit(item);
  }
  void wrong_type(const char* key, const Json& value, std::string_view expected) {
    fail(key, fmt::format("is {} {}, expected {}", value.is_null() ? "a" : "of type",
                          value.type_name(), expected));
  }
  void fail(const char* key, std::string what) {
    if (error_.empty()) error_ = fmt::format("'{}' {}", key, what);
  }

  const Json& object_;
  std::string error_;
};

}  // namespace

std::string no_text_reason(const PlanFacts& facts) {
  if (facts.scores > 0) {
    return "this model scores texts (a reranker) and generates none; serve it, and POST to /rerank";
  }
  if (facts.is_tower()) {
    return "this plan reads images for a language model and generates no text; compile that model "
           "with it: ktx-compile MODEL.gguf --mmproj PROJECTOR.gguf";
  }
  if (facts.encoder) {
    return "this model embeds texts (an encoder) and generates none; serve it, and POST to "
           "/v1/embeddings";
  }
  return "";
}

namespace {

// Sides are at most kMaxImageSide, or pixels at most kMaxImagePixels, so that patches and their
// floats can be counted without care.
Json image_json(const ImageFacts& image) {
  return {{"size", image.size},
          {"patch", image.patch},
          {"pool", image.pool},
          {"width", image.width},
          {"resize", image.resize},
          {"mean", image.mean},
          {"deviation", image.deviation},
          {"mark", image.mark},
          {"before", image.before},
          {"behind", image.behind},
          {"line_end", image.line_end},
          {"keeps_shape", image.keeps_shape},
          {"causal", image.causal},
          {"axes", image.axes},
          {"more_parts", image.more_parts},
          {"least_pixels", image.least_pixels},
          {"most_pixels", image.most_pixels}};
}

void read_image(Fields& in, ImageFacts& image) {
  in.integer("size", image.size, 1, kMaxImageSide);
  in.integer("patch", image.patch, 1, kMaxImageSide);
  in.integer("pool", image.pool, 1, kMaxImageSide);
  in.integer("width", image.width, 1, int64_t{1} << 20);
  in.one_of("resize", image.resize, {"bilinear", "bicubic"});
  in.boolean("keeps_shape", image.keeps_shape);
  in.boolean("causal", image.causal);
  in.boolean("axes", image.axes);
  in.integer("more_parts", image.more_parts, 0, kMaxImageParts - 1);
  in.integer("least_pixels", image.least_pixels, 0, kMaxImagePixels);
  in.integer("most_pixels", image.most_pixels, 0, kMaxImagePixels);
  in.numbers("mean", image.mean);
  in.numbers("deviation", image.deviation);
  in.text("mark", image.mark);
  in.text("before", image.before);
  in.text("behind", image.behind);
  in.text("line_end", image.line_end);
}

Status check_image(const ImageFacts& image) {
  const bool whole = image.patch > 0 && image.pool > 0;
  if (whole && (image.least_pixels > 0 || image.most_pixels > 0) &&
      (!image.keeps_shape || image.least_pixels > image.most_pixels || image.columns() == 0)) {
    return Error{fmt::format("an image of {} to {} pixels that {} its shape, in squares of {}",
                             image.least_pixels, image.most_pixels,
                             image.keeps_shape ? "keeps" : "does not keep", image.square())};
  }
  const bool squares = whole && (image.keeps_shape || image.size % image.patch == 0) &&
                       image.columns() % image.pool == 0 && image.columns() > 0;
  if (!squares) {
    return Error{fmt::format("an image of {} pixels a side with patches of {} and squares of {}",
                             image.size, image.patch, image.pool)};
  }
  if (image.mark.empty()) return Error{"nothing marks an image in a prompt"};
  const bool channels = image.mean.size() == 3 && image.deviation.size() == 3;
  if (!channels || std::ranges::any_of(image.deviation, [](float d) { return !(d > 0); })) {
    return Error{"the mean and the deviation of an image's channels are not three numbers each"};
  }
  return {};
}

}  // namespace

std::string to_json(const PlanFacts& facts) {
  Json json{{"architecture", facts.architecture},
            {"family", facts.family},
            {"name", facts.name},
            {"vocab_size", facts.vocab_size},
            {"hidden_size", facts.hidden_size},
            {"layers", facts.layers},
            {"context_length", facts.context_length},
            {"parameters", facts.parameters},
            {"logits_value", facts.logits_value},
            {"bos_id", facts.bos_id},
            {"eos_id", facts.eos_id},
            {"lossy", facts.lossy},
            {"default_ctx", facts.default_ctx},
            {"max_batch", facts.max_batch},
            {"chunk_tokens", facts.chunk_tokens},
            {"kv_budget_bytes", facts.kv_budget_bytes},
            {"kv_type", facts.kv_type},
            {"precision", facts.precision}};
  if (!facts.hidden_values.empty()) json["hidden_values"] = facts.hidden_values;
  if (facts.given_width > 0) json["given_width"] = facts.given_width;
  if (!facts.given_taps.empty()) json["given_taps"] = facts.given_taps;
  if (facts.draft_vocab > 0) json["draft_vocab"] = facts.draft_vocab;
  if (facts.gpu_expert_ppm >= 0) json["gpu_expert_ppm"] = facts.gpu_expert_ppm;
  if (facts.stream_slots != "layer") json["stream_slots"] = facts.stream_slots;
  if (!facts.pooling.empty()) json["pooling"] = facts.pooling;
  if (facts.scores > 0) json["scores"] = facts.scores;
  if (facts.encoder) json["encoder"] = true;
  if (facts.joint_tokens > 0) json["joint_tokens"] = facts.joint_tokens;
  if (facts.rotary_ctx > 0) json["rotary_ctx"] = facts.rotary_ctx;
  if (!facts.merged.empty()) json["merged"] = facts.merged;
  if (facts.takes_images) json["takes_images"] = true;
  if (facts.image.size > 0) json["image"] = image_json(facts.image);
  return dump(json);
}

Result<PlanFacts> facts_from_json(std::string_view text) {
  const Json json = KTX_TRY(parse_object(text));
  PlanFacts facts;
  Fields in(json);
  in.text("architecture", facts.architecture);
  in.text("family", facts.family);
  in.text("name", facts.name);
  in.integer("vocab_size", facts.vocab_size, 1, int64_t{1} << 24);
  in.integer("hidden_size", facts.hidden_size, 1, int64_t{1} << 20);
  in.integer("layers", facts.layers, 1, 1 << 16);
  in.integer("context_length", facts.context_length, 1, int64_t{1} << 32);
  in.integer("rotary_ctx", facts.rotary_ctx, 0, int64_t{1} << 40);
  in.integer("parameters", facts.parameters, 0, kMaxCount);
  in.integer("logits_value", facts.logits_value, 0, UINT32_MAX - 1);
  in.integers("hidden_values", facts.hidden_values, 0, UINT32_MAX - 1);
  in.integer("given_width", facts.given_width, 0, int64_t{1} << 32);
  in.integers("given_taps", facts.given_taps, -1, INT32_MAX);
  in.integer("draft_vocab", facts.draft_vocab, 0, int64_t{1} << 24);
  in.one_of("pooling", facts.pooling, {"", "none", "mean", "cls", "last", "rank"});
  in.integer("scores", facts.scores, 0, 1 << 16);
  in.boolean("encoder", facts.encoder);
  in.integer("bos_id", facts.bos_id, -1, int64_t{1} << 24);
  in.integer("eos_id", facts.eos_id, -1, int64_t{1} << 24);
  in.integer("gpu_expert_ppm", facts.gpu_expert_ppm, -1, 1000000);
  in.one_of("stream_slots", facts.stream_slots, {"layer", "matrix", "eighth"});
  in.integer("joint_tokens", facts.joint_tokens, 0, 1 << 20);
  in.boolean("lossy", facts.lossy);
  in.texts("merged", facts.merged);
  in.integer("default_ctx", facts.default_ctx, 1, int64_t{1} << 32);
  in.integer("max_batch", facts.max_batch, 1, 1 << 20);
  in.integer("chunk_tokens", facts.chunk_tokens, 1, kMostChunk);
  in.integer("kv_budget_bytes", facts.kv_budget_bytes, 0, kMaxCount);
  in.one_of("kv_type", facts.kv_type, {"F32", "F16", "Q8_0"});
  in.one_of("precision", facts.precision, {"exact", "fast"});
  in.boolean("takes_images", facts.takes_images);
  in.object("image", facts.image, read_image);
  KTX_TRY(in.status());
  if (facts.image.size > 0) KTX_TRY(check_image(facts.image));
  return facts;
}

std::string to_json(const PlanTarget& target) {
  Json devices = Json::array();
  for (const PlanTarget::Device& device : target.devices) {
    devices.push_back({{"name", device.name}, {"memory_bytes", device.memory_bytes}});
  }
  Json json{{"name", target.name},
            {"isa", target.isa},
            {"required_isa", target.required_isa},
            {"devices", devices}};
  for (const PlanTarget::Host& host : target.hosts) {
    json["hosts"].push_back({{"name", host.name}, {"memory_bytes", host.memory_bytes}});
  }
  return dump(json);
}

Result<PlanTarget> target_from_json(std::string_view text) {
  const Json json = KTX_TRY(parse_object(text));
  PlanTarget target;
  Fields in(json);
  in.text("name", target.name);
  in.text("isa", target.isa);
  in.texts("required_isa", target.required_isa);
  in.objects("devices", target.devices, [](Fields& item, PlanTarget::Device& device) {
    item.text("name", device.name);
    item.integer("memory_bytes", device.memory_bytes, 0, kMaxCount);
  });
  in.objects("hosts", target.hosts, [](Fields& item, PlanTarget::Host& host) {
    item.text("name", host.name);
    item.integer("memory_bytes", host.memory_bytes, 0, kMaxCount);
  });
  KTX_TRY(in.status());
  return target;
}

std::string to_json(const PlanProvenance& provenance) {
  Json inputs = Json::array();
  for (const PlanProvenance::Input& input : provenance.inputs) {
    inputs.push_back(
        {{"what", input.what}, {"size_bytes", input.size_bytes}, {"hash", to_hex(input.hash)}});
  }
  return dump(Json{{"ktx_version", provenance.ktx_version},
                   {"inputs", inputs},
                   {"options", provenance.options},
                   {"general", provenance.general}});
}

Result<PlanProvenance> provenance_from_json(std::string_view text) {
  const Json json = KTX_TRY(parse_object(text));
  PlanProvenance provenance;
  Fields in(json);
  in.text("ktx_version", provenance.ktx_version);
  in.objects("inputs", provenance.inputs, [](Fields& item, PlanProvenance::Input& input) {
    item.text("what", input.what);
    item.integer("size_bytes", input.size_bytes, 0, INT64_MAX);
    item.hash("hash", input.hash);
  });
  in.texts("options", provenance.options);
  in.text_map("general", provenance.general);
  KTX_TRY(in.status());
  return provenance;
}

std::string to_json(const PlanChatTemplate& chat_template) {
  return dump(Json{{"source", chat_template.source},
                   {"bos", chat_template.bos},
                   {"eos", chat_template.eos},
                   {"named", chat_template.named}});
}

Result<PlanChatTemplate> chat_template_from_json(std::string_view text) {
  const Json json = KTX_TRY(parse_object(text));
  PlanChatTemplate chat_template;
  Fields in(json);
  in.text("source", chat_template.source);
  in.text("bos", chat_template.bos);
  in.text("eos", chat_template.eos);
  in.text_map("named", chat_template.named);
  KTX_TRY(in.status());
  return chat_template;
}

}  // namespace ktx::plan
