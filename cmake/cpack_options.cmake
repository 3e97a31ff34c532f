# Read by cpack for each package that it makes: what is no CPACK_ variable.
if(CPACK_GENERATOR STREQUAL DEB)
  set(SHLIBDEPS_EXECUTABLE ${CMAKE_CURRENT_LIST_DIR}/shlibdeps)
endif()
