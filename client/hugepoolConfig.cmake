include("${CMAKE_CURRENT_LIST_DIR}/hugepoolTargets.cmake")
