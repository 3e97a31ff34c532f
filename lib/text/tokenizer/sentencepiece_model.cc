// Reads the few fields that matter of a SentencePiece tokenizer.model (protobuf,
// sentencepiece_model.proto):
//
//   ModelProto      1 pieces*  2 trainer_spec  3 normalizer_spec
//   SentencePiece   1 piece    2 score         3 type (the numbers of TokenType)
//   TrainerSpec     3 model_type  24 treat_whitespace_as_suffix  35 byte_fallback
//                   40 unk_id  41 bos_id  42 eos_id  43 pad_id
//   NormalizerSpec  2 precompiled_charsmap  3 add_dummy_prefix
//                   4 remove_extra_whitespaces  5 escape_whitespaces
//
// Other fields are skipped by their wire type, other wire types refused.
#include <fmt/format.h>

#include <cstring>

#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"
#include "lib/text/tokenizer/hf_tokenizer.h"

namespace ktx::text {
namespace {

constexpr uint64_t kBpeModel = 2;
constexpr const char* kModelTypes[] = {"0", "Unigram", "BPE", "word", "char"};

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // varints and fixed numbers
  std::string_view bytes;  // strings and messages
};

// The fields of one message, in order.
class Message {
 public:
  explicit Message(std::string_view bytes) : in_(std::as_bytes(std::span(bytes))) {}

  bool at_end() const { return in_.remaining() == 0; }
  Result<Field> next() {
    Field field;
    const uint64_t tag = KTX_TRY(varint());
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0:
        field.value = KTX_TRY(varint());
        return field;
      case 1:
        return fixed<uint64_t>(field);
      case 2: {
        const auto bytes = in_.take_text(KTX_TRY(varint()));
        if (!bytes) return cut();
        field.bytes = *bytes;
        return field;
      }
      case 5:
        return fixed<uint32_t>(field);
      default:
        return Error{
            fmt::format("protobuf wire type {} at offset {} of a message; not a "
                        "SentencePiece model",
                        tag & 7, in_.position())};
    }
  }

 private:
  Error cut() const {
    return Error{
        fmt::format("a protobuf field at offset {} of a message goes beyond its end; not "
                    "a SentencePiece model, or cut short",
                    in_.position())};
  }
  template <class T>
  Result<Field> fixed(Field field) {
    const auto value = in_.read<T>();
    if (!value) return cut();
    field.value = *value;
    return field;
  }
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = in_.read<uint8_t>();
      if (!byte) return cut();
      value |= uint64_t{*byte & 0x7Fu} << shift;
      if (*byte < 0x80) return value;
    }
    return Error{"a protobuf number is longer than 64 bits; not a SentencePiece model"};
  }
  ByteReader in_;
};

struct Model {
  std::vector<std::string_view> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;
  uint64_t model_type = 1;
  int64_t unk = 0, bos = 1, eos = 2, pad = -1;
  bool byte_fallback = false, whitespace_as_suffix = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string_view character_map;
};

Status read_piece(std::string_view bytes, Model& model) {
  std::string_view piece;
  float score = 0;
  uint64_t type = 1;
  for (Message message(bytes); !message.at_end();) {
    const Field field = KTX_TRY(message.next());
    if (field.number == 1) piece = field.bytes;
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof(score));
    }
    if (field.number == 3) type = field.value;
  }
  if (type > 6) return Error{fmt::format("piece {} has type {}", model.pieces.size(), type)};
  model.pieces.push_back(piece);
  model.scores.push_back(score);
  model.types.push_back(static_cast<int32_t>(type));
  return {};
}

Status read_trainer(std::string_view bytes, Model& model) {
  for (Message message(bytes); !message.at_end();) {
    const Field field = KTX_TRY(message.next());
    switch (field.number) {
      case 3:
        model.model_type = field.value;
        break;
      case 24:
        model.whitespace_as_suffix = field.value != 0;
        break;
      case 35:
        model.byte_fallback = field.value != 0;
        break;
      case 40:
        model.unk = static_cast<int64_t>(field.value);
        break;
      case 41:
        model.bos = static_cast<int64_t>(field.value);
        break;
      case 42:
        model.eos = static_cast<int64_t>(field.value);
        break;
      case 43:
        model.pad = static_cast<int64_t>(field.value);
        break;
      default:
        break;
    }
  }
  return {};
}

Status read_normalizer(std::string_view bytes, Model& model) {
  for (Message message(bytes); !message.at_end();) {
    const Field field = KTX_TRY(message.next());
    switch (field.number) {
      case 2:
        model.character_map = field.bytes;
        break;
      case 3:
        model.add_dummy_prefix = field.value != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = field.value != 0;
        break;
      case 5:
        model.escape_whitespaces = field.value != 0;
        break;
      default:
        break;
    }
  }
  return {};
}

// An id of the trainer's, which may be meant as "none".
std::optional<uint64_t> role(int64_t id, const Model& model) {
  if (id < 0 || static_cast<uint64_t>(id) >= model.pieces.size()) return std::nullopt;
  return static_cast<uint64_t>(id);
}

}  // namespace

Result<TokenizerData> parse_sentencepiece_model(std::span<const std::byte> bytes) {
  Model model;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (Message message(text); !message.at_end();) {
    const Field field = KTX_TRY(message.next());
    if (field.number == 1) KTX_TRY(read_piece(field.bytes, model));
    if (field.number == 2) KTX_TRY(read_trainer(field.bytes, model));
    if (field.number == 3) KTX_TRY(read_normalizer(field.bytes, model));
  }
  if (model.pieces.empty()) return Error{"no pieces; not a SentencePiece model"};
  if (model.model_type != kBpeModel) {
    const char* name = model.model_type < 5 ? kModelTypes[model.model_type] : "unknown";
    return Error{
        fmt::format("a SentencePiece model of type {} is not supported, only BPE is", name)};
  }
  TokenizerSource source;
  source.model = "llama";
  source.tokens = model.pieces;
  source.scores = model.scores;
  source.token_types = model.types;
  source.unk = role(model.unk, model);
  source.bos = role(model.bos, model);
  source.eos = role(model.eos, model);
  source.pad = role(model.pad, model);
  source.add_bos = model.bos >= 0 && source.bos.has_value();
  source.add_space_prefix = model.add_dummy_prefix;
  source.remove_extra_whitespaces = model.remove_extra_whitespaces;
  source.character_map = model.character_map;
  TokenizerData data = KTX_TRY(make_tokenizer_data(source));
  data.pre = "sentencepiece";
  data.byte_fallback = model.byte_fallback;
  data.escape_whitespaces = model.escape_whitespaces;
  data.treat_whitespace_as_suffix = model.whitespace_as_suffix;
  return data;
}

}  // namespace ktx::text
