"""CDR bytes come in, observations go out: types, the shapes of detections, safe text.

Pure: nothing here knows ROS, asyncio or where messages come from. May import `model` and `errors`.
"""
