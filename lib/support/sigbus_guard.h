// Keeps missing pages of a mapped file from ending the program.
//
//   SigbusGuard guard(data, size, /*writable=*/false);
//   ... read ...
//   if (guard.hit()) return Error{"the file became smaller"};
//   // the guard goes before munmap()
//
// A file that shrinks while it is mapped, or whose disk fails, raises SIGBUS. Behind a guard a
// missing page and all behind it read as zeros (and writes to them are lost), and hit() becomes
// true: check it afterwards, and do not use what was read.
#pragma once

#include <cstddef>

namespace ktx {

class SigbusGuard {
 public:
  // `data` begins a page. With thousands of guards at once some guard nothing.
  SigbusGuard(void* data, size_t size, bool writable);
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;
  ~SigbusGuard();

  bool hit() const;

  struct Slot;  // what the signal handler sees

 private:
  Slot* slot_;
};

}  // namespace ktx
