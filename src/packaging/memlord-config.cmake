# Defines memlord::memlord and memlord::cuda, for find_package and for CMakeLists.txt. The component
# cuda finds CUDA's toolkit, which nothing else here looks for.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
foreach(memlord_component IN LISTS memlord_FIND_COMPONENTS)
  if(NOT memlord_component STREQUAL "cuda")
    set(memlord_FOUND FALSE)
    set(memlord_NOT_FOUND_MESSAGE "memlord has no component '${memlord_component}'")
    return()
  endif()
  find_dependency(CUDAToolkit)
  set(memlord_cuda_FOUND TRUE)
endforeach()

if(NOT TARGET memlord::memlord)
  get_filename_component(memlord_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
  add_library(memlord::memlord INTERFACE IMPORTED)
  set_target_properties(memlord::memlord PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${memlord_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  # The program links CUDA::cudart or CUDA::cudart_static itself: two runtimes in one do not work.
  add_library(memlord::cuda INTERFACE IMPORTED)
  set_target_properties(memlord::cuda PROPERTIES
    INTERFACE_LINK_LIBRARIES "memlord::memlord;CUDA::toolkit;${CMAKE_DL_LIBS}")
endif()
