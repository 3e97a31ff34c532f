// Progress of a long write: on a terminal a bar in one line, never wider than the terminal;
// elsewhere a plain line now and then. Nothing with TERM=dumb. Writes to stderr. With
// KTX_PROGRESS=json, for a program that shows it, a line of JSON for each step:
//
//   {"what": "packing", "done": 297795584, "total": 675020800}
#pragma once

#include <cstdint>
#include <string>

#include "lib/support/timer.h"

namespace ktx::tools {

bool progress_is_json();

class Progress {
 public:
  enum class Unit { Bytes, Tokens };
  // `what` begins the line: "packing".
  Progress(std::string what, bool quiet, Unit unit = Unit::Bytes);
  void update(uint64_t done, uint64_t total);
  void finish();  // leaves the terminal on a fresh line

 private:
  std::string amount(uint64_t count) const;

  std::string what_;
  Unit unit_ = Unit::Bytes;
  bool quiet_ = false;
  bool terminal_ = false;
  bool json_ = progress_is_json();
  bool drawn_ = false;
  double last_seconds_ = -1e9;
  Timer timer_;
};

}  // namespace ktx::tools
