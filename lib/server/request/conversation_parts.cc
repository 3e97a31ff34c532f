#include "lib/server/request/conversation_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::server {
namespace {

constexpr unsigned Chat = static_cast<unsigned>(Protocol::Chat);
constexpr unsigned Responses = static_cast<unsigned>(Protocol::Responses);
constexpr unsigned Messages = static_cast<unsigned>(Protocol::Messages);

constexpr HeldRow kHeldRows[] = {
#define KTX_HELD(protocols, kind, type, as, name) {protocols, Held::kind, type, HeldAs::as, name},
#include "lib/server/request/conversation_parts.def"
};

bool has_type(const HeldRow& row, std::string_view type) {
  if (!row.type.ends_with('*')) return row.type == type;
  return type.starts_with(row.type.substr(0, row.type.size() - 1));
}

// "text, image_url or file": what could stand there, each row that is read.
std::string possible_types(Protocol protocol, Held kind) {
  std::vector<std::string> names;
  for (const HeldRow& row : kHeldRows) {
    const bool read = row.as != HeldAs::Skipped && row.as != HeldAs::Refused;
    if (row.kind == kind && (row.protocols & static_cast<unsigned>(protocol)) != 0 && read) {
      names.emplace_back(row.type);
    }
  }
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : join(names, ", ") + " or " + last;
}

}  // namespace

const HeldRow* find_held(Protocol protocol, Held kind, std::string_view type) {
  const auto* row =
      std::find_if(std::begin(kHeldRows), std::end(kHeldRows), [&](const HeldRow& held) {
        return held.kind == kind && (held.protocols & static_cast<unsigned>(protocol)) != 0 &&
               has_type(held, type);
      });
  return row == std::end(kHeldRows) ? nullptr : row;
}

ApiError refuse_held(Protocol protocol, Held kind, const std::string& type,
                     const std::string& where) {
  const HeldRow* row = find_held(protocol, kind, type);
  const std::string why = row != nullptr
                              ? fmt::format("which is not read ({})", row->name)
                              : fmt::format("expected {}", possible_types(protocol, kind));
  return {400, fmt::format("'{}' is of type '{}', {}", where, printable(type), why), where, ""};
}

void note_skipped(const HeldRow& row, const std::string& where, Notes& notes) {
  constexpr size_t kMostNotes = 16;
  if (notes.size() < kMostNotes) {
    notes.push_back(fmt::format("{}: {} is left out", where, row.name));
  }
}

void send_notes(const Notes& notes, HttpReply& reply) {
  for (const std::string& note : notes) reply.add_note(note);
}

}  // namespace ktx::server
