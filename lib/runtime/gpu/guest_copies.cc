#include "lib/runtime/gpu/guest_copies.h"

#include <algorithm>
#include <cstring>

namespace ktx::runtime {
namespace {

constexpr uint64_t kPieceBytes = 128 << 10;  // of a thread's copy

uint64_t bytes_of(const GuestLayer& layer) {
  uint64_t sum = 0;
  for (const GuestWeight& weight : layer.weights) sum += plan::stream_aligned(weight.from_bytes);
  return sum;
}

// The bytes of one table in the memory of all tables.
uint64_t table_bytes(const GuestLayer& layer) {
  return layer.cpu_places.size() * sizeof(float);
}

}  // namespace

Result<std::unique_ptr<GuestCopies>> GuestCopies::create(const GuestSetup& setup, Gpu& gpu) {
  std::unique_ptr<GuestCopies> own(new GuestCopies(setup, gpu));
  KTX_TRY(own->allocate());
  if (own->places_.empty()) return std::unique_ptr<GuestCopies>();
  return own;
}

Status GuestCopies::allocate() {
  uint64_t most = 0, tables = 0;
  changes_.resize(setup_.plan.program->blobs.size());
  for (const GuestLayer& layer : setup_.guests.layers()) {
    tables += 2 * table_bytes(layer);
    if (layer.device != setup_.device) continue;
    most = std::max(most, bytes_of(layer));
    changes_[layer.gpu_blob] = true;
    for (const GuestWeight& weight : layer.weights) changes_[weight.to] = true;
  }
  if (most == 0) return {};
  const int64_t at_once = setup_.guests.options().at_once;
  const uint64_t count = std::clamp<uint64_t>(kMostGuestBytes / most, 1,
                                              static_cast<uint64_t>(std::max<int64_t>(1, at_once)));
  panels_ = KTX_TRY(gpu_.allocate(count * most, "experts on their way to slots"));
  host_ = HostBuffer(gpu_, count * most);
  tables_ = HostBuffer(gpu_, tables);
  for (uint64_t i = 0; i < count; ++i) {
    Place& place = places_.emplace_back();
    place.host = host_.data() + i * most;
    place.panels = panels_.data() + i * most;
    place.copied = KTX_TRY(gpu_.new_mark());
    place.taken = KTX_TRY(gpu_.new_mark());
  }
  return {};
}

Status GuestCopies::begin_forward() {
  if (stopped_) return {};
  for (Place& place : places_) {
    if (!place.busy) continue;
    const Result<bool> come = gpu_.passed(place.copied);
    if (!come) stop();
    if (stopped_) return {};
    if (*come) KTX_TRY(settle(place));
  }
  const int64_t free = std::ranges::count(places_, false, &Place::busy);
  if (stopped_ || free == 0) return {};
  auto place = places_.begin();
  for (const GuestMove& move : setup_.guests.choose(setup_.device, free)) {
    while (place->busy) ++place;
    place->move = move;
    place->busy = !stopped_ && read(*place);
    if (place->busy && !send(*place)) stop();
    if (!place->busy) setup_.guests.drop(move);
  }
  return {};
}

// Nothing comes any more, and experts stay where they are.
void GuestCopies::stop() {
  stopped_ = true;
  setup_.guests.count_failure();
  for (Place& place : places_) {
    if (place.busy) setup_.guests.drop(place.move);
    place.busy = false;
  }
}

// The expert's bytes into pinned memory. False: they are on disk.
bool GuestCopies::read(Place& place) {
  struct Piece {
    const std::byte* from;
    std::byte* to;
    uint64_t bytes;
  };
  const GuestLayer& layer = setup_.guests.layers()[place.move.layer];
  const auto matrix = static_cast<uint64_t>(layer.home[place.move.expert]);
  std::vector<Piece> pieces;
  std::byte* to = place.host;
  for (const GuestWeight& weight : layer.weights) {
    const uint64_t begin = matrix * weight.from_bytes;
    const std::span<std::byte> out(to, weight.from_bytes);
    to += plan::stream_aligned(weight.from_bytes);
    if (setup_.cache && setup_.cache->of(weight.from)) {
      if (!setup_.cache->copy_expert(weight.from, static_cast<int32_t>(matrix), out)) return false;
      continue;
    }
    const std::byte* const from =
        setup_.plan.blob_bytes(static_cast<uint32_t>(weight.from)).data() + begin;
    for (uint64_t at = 0; at < out.size(); at += kPieceBytes) {
      pieces.push_back({from + at, out.data() + at, std::min(kPieceBytes, out.size() - at)});
    }
  }
  setup_.pool.for_each(std::ssize(pieces), [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    std::memcpy(piece.to, piece.from, piece.bytes);
  });
  return true;
}

Status GuestCopies::send(Place& place) {
  const GuestLayer& layer = setup_.guests.layers()[place.move.layer];
  KTX_TRY(gpu_.uploads_after(place.taken));
  return gpu_.upload_beside(place.panels, place.host, bytes_of(layer), place.copied);
}

// What has come takes the place of the slot's guest.
Status GuestCopies::settle(Place& place) {
  place.busy = false;
  setup_.guests.leave(place.move);
  const Status made = make_tiles(place);
  if (made) {
    setup_.guests.enter(place.move, bytes_of(setup_.guests.layers()[place.move.layer]));
  } else {
    setup_.guests.drop(place.move);
    stop();
  }
  return send_tables(place.move.layer);
}

Status GuestCopies::make_tiles(const Place& place) {
  const GuestLayer& layer = setup_.guests.layers()[place.move.layer];
  KTX_TRY(gpu_.queue_after(place.copied));
  const std::byte* from = place.panels;
  for (const GuestWeight& weight : layer.weights) {
    const program::Blob& home = setup_.plan.program->blobs[weight.from];
    std::byte* const to =
        setup_.blobs[weight.to] + static_cast<uint64_t>(place.move.slot) * weight.to_bytes;
    KTX_TRY(weight.product
                ? gpu_.retile({home.dtype, home.layout, home.cols, weight.strips, from, to})
                : gpu_.copy(to, from, weight.to_bytes));
    from += plan::stream_aligned(weight.from_bytes);
  }
  return gpu_.set(place.taken);
}

// Both of the layer's to the steps on the GPU; those of the CPU read them where they are.
Status GuestCopies::send_tables(size_t number) {
  const std::span<GuestLayer> layers = setup_.guests.layers();
  std::byte* table = tables_.data();
  for (size_t l = 0; l < number; ++l) table += 2 * table_bytes(layers[l]);
  const GuestLayer& layer = layers[number];
  const uint64_t bytes = table_bytes(layer);
  std::memcpy(table, layer.gpu_places.data(), bytes);
  std::memcpy(table + bytes, layer.cpu_places.data(), bytes);
  KTX_TRY(gpu_.upload(setup_.blobs[layer.gpu_blob], table, bytes));
  for (const StreamingGpu& other : setup_.streaming) {
    std::byte* const streamed = other.streams->blobs()[layer.cpu_blob];
    if (streamed) KTX_TRY(other.gpu->upload(streamed, table + bytes, bytes));
  }
  return {};
}

}  // namespace ktx::runtime
