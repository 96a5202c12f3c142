# Sets PACKAGE_VERSION from memlord.h: that of the checkout, or of the tree this file is installed in.
# It serves a request for the same major and minor version, and the same or an earlier patch.
set(memlord_header "${CMAKE_CURRENT_LIST_DIR}/../../memlord.h")
if(NOT EXISTS "${memlord_header}")
  set(memlord_header "${CMAKE_CURRENT_LIST_DIR}/../../../include/memlord.h")
endif()
file(STRINGS "${memlord_header}" memlord_line REGEX "^#define MEMLORD_VERSION \"")
string(REGEX MATCH "([0-9]+\\.[0-9]+)\\.[0-9]+" PACKAGE_VERSION "${memlord_line}")

if(CMAKE_MATCH_1 STREQUAL "${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}"
    AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
