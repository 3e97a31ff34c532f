// For programs that are to run with glibc 2.35 and are built with a newer one (KTX_STATIC): the
// static libstdc++ of a machine with glibc 2.36 takes std::random_device's numbers from
// arc4random(), which 2.35 has not. Here it is, over the system call that both have.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) abort();
  }
  return number;
}
