# cmake -DSOURCE=. -DOUT=build_commit.h -P build_commit.cmake
#
# The commit that is being built, as KTX_COMMIT; the file is touched only when it has changed.
# "unknown" outside of a clone.
find_program(git git)
set(commit unknown)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short=10 HEAD
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(found)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define KTX_COMMIT \"${commit}\"\n")
